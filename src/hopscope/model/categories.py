# SPDX-License-Identifier: Apache-2.0
"""THE table that tells what the kernel was busy with by the functions in a stack, for kernels 5.10 to 7.x.

The innermost function that a row knows decides (:mod:`hopscope.model.classify`), so that what every layer uses
(``memcpy``, hashing, reference counts, timers) is in no row: it counts to who called it. So does unlocking: a timer
that was held off by disabled interrupts goes off there, and the time was spent before.

A pattern is the name of a function, or the beginning of one with ``*`` behind it. An exact name goes before a
beginning, a longer beginning before a shorter one; no pattern may be in two rows.
"""

from __future__ import annotations

from typing import Final, NamedTuple

OTHER: Final = "other"
UNSAMPLED: Final = "unsampled"


class Row(NamedTuple):
    """Functions, and what they are about.

    Attributes
    ----------
    category
        One of :data:`CATEGORIES`.
    detail
        A finer name, may be empty. ``{callee}`` stands for the function that was called by the one that the row knows,
        ``{hook}`` for netfilter's hook (by :data:`HOOKS`), ``{program}`` for the name of a BPF program.
    why
        What these functions do.
    patterns
        With blanks between.
    """

    category: str
    detail: str
    why: str
    patterns: str


# fmt: off
ROWS: Final = (
    # interrupts and the driver's side
    Row("interrupt", "{callee}", "calls the handlers of an interrupt", "__handle_irq_event_percpu"),
    Row("interrupt", "", "entry of an interrupt, down to its handler", """
        common_interrupt __common_interrupt asm_common_interrupt el1_interrupt el0_interrupt el1h_64_irq*
        el0t_64_irq* gic_handle_irq fred_extint call_on_irq_stack do_interrupt_handler handle_irq_event*
        handle_edge_irq handle_level_irq handle_fasteoi_irq handle_percpu_devid_irq generic_handle_* __handle_irq*
        irq_enter* irq_exit* __irq_exit_rcu note_interrupt add_interrupt_randomness sysvec_* asm_sysvec_*
        apic_ack_* irq_chip_*"""),
    Row("interrupt", "softirq", "runs the softirqs that were raised", """
        handle_softirqs __do_softirq do_softirq do_softirq_own_stack __raise_softirq_irqoff raise_softirq*
        run_ksoftirqd smpboot_thread_fn"""),
    Row("interrupt", "napi_schedule", "an interrupt's handler asks for a poll", "__napi_schedule* napi_schedule_prep"),
    Row("driver_poll", "{callee}", "what a poll calls is the driver's, unless another row knows it", """
        __napi_poll napi_poll net_rx_action napi_threaded_poll napi_threaded_poll_loop"""),
    Row("driver_poll", "napi", "the end of a poll", """
        napi_complete_done napi_watchdog napi_resume_irqs napi_suspend_irqs"""),
    Row("busy_poll", "{callee}", "a task polls the device itself", """
        napi_busy_loop* __napi_busy_loop busy_poll_stop* sk_busy_loop* ep_busy_loop* io_napi_busy_loop*
        __io_napi_busy_loop io_napi_sqpoll_busy_poll"""),
    Row("gro", "", "joins received packets", """
        napi_gro_* dev_gro_receive gro_* skb_gro_* inet_gro_* ipv6_gro_* tcp_gro_* tcp4_gro_* tcp6_gro_* udp_gro_*
        udp4_gro_* udp6_gro_* eth_gro_* vlan_gro_* vxlan_gro_* geneve_gro_* gre_gro_* ipip_gro_* sit_ip6ip6_gro_*
        sit_gro_* ip4ip6_gro_* ip6ip6_gro_* fou_gro_* gue_gro_* esp4_gro_* esp6_gro_* xfrm4_gro_* xfrm6_gro_*
        napi_reuse_skb napi_get_frags napi_skb_finish __udp_gso_segment_list"""),
    # XDP and tc
    Row("xdp", "generic", "XDP after the packet became an skb", """
        do_xdp_generic netif_receive_generic_xdp bpf_prog_run_generic_xdp generic_xdp_tx"""),
    Row("xdp", "redirect", "hands packets on without the stack", """
        xdp_do_* bq_enqueue bq_xmit_all bq_flush_to_queue __dev_flush __cpu_map_flush __xsk_map_flush
        dev_map_enqueue* dev_map_redirect* dev_map_generic_redirect dev_map_bpf_prog_run* cpu_map_enqueue
        cpu_map_generic_redirect cpu_map_kthread_run cpu_map_bpf_prog_run* xdp_master_redirect"""),
    Row("xdp", "", "the driver's packets for programs, and back", """
        skb_pp_cow_data skb_cow_data_for_xdp xdp_build_skb_* __xdp_build_skb_* xdp_convert_* bpf_dispatcher_xdp*
        xdp_test_run_batch"""),
    Row("tc", "", "classifiers and their actions, on the way in and out", """
        tcf_classify* tcf_action_exec tcf_mirred_act tcf_skbmod_act tcf_gact_act tcf_pedit_act tcf_police_act
        tcf_vlan_act tcf_ct_act tcf_csum_act tcf_skbedit_act tcf_bpf_act tcf_sample_act tunnel_key_act
        tcf_mpls_act tcf_nat_act tcf_connmark_act tcf_ctinfo_act tcf_gate_act tcf_chain_* tcf_dev_queue_xmit
        tcf_qevent_handle tcf_em_* __tcf_em_* tc_run tcx_run sch_handle_ingress sch_handle_egress cls_bpf_classify
        fl_classify fl_mask_lookup u32_classify mall_classify fw_classify flow_classify basic_classify
        route4_classify cls_cgroup_classify skb_do_redirect __bpf_redirect* mini_qdisc_*"""),
    # programs at other places
    Row("bpf", "socket filter", "runs the filters of a socket", "sk_filter_trim_cap"),
    Row("bpf", "cgroup", "runs the programs of a cgroup", "__cgroup_bpf_run_*"),
    Row("bpf", "sockmap", "sockets joined by a map", """
        sk_psock_* tcp_bpf_* udp_bpf_* sk_msg_* __sk_msg_* sock_map_* sock_hash_* strp_* unix_bpf_* vsock_bpf_*"""),
    Row("bpf", "tracing", "calls the programs of tracing tools, hopscope's among them", """
        bpf_trace_run* __bpf_trace_* __traceiter_* trace_call_bpf bpf_trampoline_* __bpf_prog_enter*
        __bpf_prog_exit* __bpf_tramp_* bpf_get_stack* bpf_perf_event_* perf_trace_* perf_tp_event trace_event_*"""),
    Row("bpf", "lookup", "programs that choose sockets", """
        bpf_sk_lookup* bpf_flow_dissect sk_select_reuseport reuseport_select_sock reuseport_migrate_sock
        bpf_run_sk_reuseport"""),
    # between driver and protocol
    Row("receive_core", "", "finds who takes a received packet", """
        __netif_receive_skb* netif_receive_skb* deliver_skb deliver_ptype_list_skb skb_vlan_untag eth_type_trans
        __skb_vlan_*"""),
    Row("receive_core", "backlog", "queues a packet for the softirq, here or on another CPU", """
        netif_rx* __netif_rx* enqueue_to_backlog process_backlog flush_backlog __dev_forward_skb* dev_forward_skb*
        run_backlog_napi backlog_napi_should_run gro_cell_poll gro_cells_receive"""),
    Row("receive_core", "rps", "chooses the CPU that a packet goes to", """
        get_rps_cpu set_rps_cpu rps_* net_rps_* trigger_rx_softirq"""),
    Row("bridge", "", "the Linux bridge", """
        br_* __br_* nbp_* fdb_find_rcu should_deliver deliver_clone maybe_deliver vlan_tunnel_*"""),
    Row("bridge", "openvswitch", "Open vSwitch", "ovs_* internal_dev_xmit netdev_frame_hook"),
    Row("tunnel", "vxlan", "VXLAN", "vxlan_* __vxlan_*"),
    Row("tunnel", "geneve", "Geneve", "geneve_*"),
    Row("tunnel", "gre", "GRE, ERSPAN", "gre_* ipgre_* ip6gre_* erspan_* ip6erspan_* __gre_*"),
    Row("tunnel", "ipip", "IP in IP, 6in4, and what all tunnels over IP share", """
        ipip_* ip_tunnel_* __ip_tunnel_* ip_md_tunnel_xmit iptunnel_* tunnel4_* tunnel64_* tunnel6_* ip4ip6_*
        ip6ip6_* ip6_tnl_* ip6_tunnel_* ipxip6_* sit_* ipip6_* mplsip_* vti_* vti6_* xfrmi_*"""),
    Row("tunnel", "udp", "what tunnels over UDP share, and the small ones", """
        udp_tunnel_* udp_tunnel6_* __udp_tunnel* setup_udp_tunnel_sock fou_* gue_* bareudp_* gtp_* l2tp_*
        pppol2tp_*"""),
    Row("tunnel", "wireguard", "WireGuard, its ciphers aside", "wg_*"),
    Row("tunnel", "mpls", "MPLS, segment routing, lightweight tunnels", "mpls_* seg6_* ila_* ioam6_* lwtunnel_*"),
    Row("tunnel", "ppp", "PPP", "ppp_* pppoe_* __ppp_*"),
    Row("virtual_device", "vlan", "VLAN devices", "vlan_do_receive vlan_dev_*"),
    Row("virtual_device", "macvlan", "macvlan, macvtap", "macvlan_* macvtap_* tap_*"),
    Row("virtual_device", "ipvlan", "ipvlan", "ipvlan_* ipvtap_*"),
    Row("virtual_device", "bond", "bonding, teaming", "bond_* __bond_* team_* lb_transmit ab_transmit rr_transmit"),
    Row("virtual_device", "vrf", "VRF devices", "vrf_*"),
    Row("virtual_device", "tun", "TUN, TAP and vhost, where virtual machines are", """
        tun_* __tun_* vhost_* handle_tx* handle_rx*"""),
    Row("virtual_device", "ifb", "ifb, dummy, netkit", "ifb_* dummy_xmit nlmon_xmit netkit_*"),
    # netfilter
    Row("conntrack", "", "connection tracking", """
        ctnetlink_* nf_conntrack_* __nf_conntrack_* nf_ct_* __nf_ct_* ipv4_conntrack_* ipv6_conntrack_*
        ipv4_confirm ipv6_confirm nf_confirm hash_conntrack_raw resolve_normal_ct init_conntrack nf_conncount_*
        __nf_conncount_* early_drop tcp_in_window tcp_options tcp_new destroy_conntrack nf_expect_* gc_worker"""),
    Row("conntrack", "defragment", "joins fragments before they are tracked", """
        ipv4_conntrack_defrag ipv6_defrag nf_ct_frag6_* nf_defrag_*"""),
    Row("nat", "", "address translation", """
        nf_nat_* __nf_nat_* nat_* get_unique_tuple find_appropriate_src find_best_ips_proto l4proto_manip_pkt
        nf_xfrm_me_harder ip_route_me_harder ip6_route_me_harder iptable_nat_* ip6table_nat_* xt_snat_* xt_dnat_*
        masquerade_* masq_* nft_nat_eval nft_masq_* nft_redir_* redirect_tg* inet_proto_csum_replace*
        nf_csum_update nf_in_range"""),
    Row("netfilter", "{hook}", "calls what is registered at a hook", """
        nf_hook_slow nf_hook_slow_list nf_queue* nf_reinject nfqnl_* __nfqnl_* nf_log_* nf_checksum*
        nf_ip_checksum nf_ip6_checksum nf_send_* nf_reject_* nf_tproxy_* nf_dup_* nf_fwd_* nf_sk_lookup_* nf_osf_*
        nf_synproxy_* ipv4_synproxy_hook ipv6_synproxy_hook synproxy_* nf_ip_route nf_hook_run_bpf br_nf_*
        nf_bridge_* nf_do_netdev_egress"""),
    Row("netfilter", "nft {hook}", "nf_tables evaluates rules", """
        nft_* __nft_* expr_call_ops_eval nf_tables_* pipapo_*"""),
    Row("netfilter", "iptables {hook}", "iptables and its matches and targets, ipset", """
        ipt_* ip6t_* arpt_* xt_* iptable_* ip6table_* arptable_* ip_set_* hash_ip* hash_net* hash_mac* bitmap_ip*
        bitmap_port* list_set_* mark_mt mark_tg connmark_* state_mt conntrack_mt* tcp_mt udp_mt icmp_match
        icmp6_match multiport_mt comment_mt limit_mt hashlimit_* addrtype_mt* set_match_* set_target_* owner_mt*
        recent_mt* string_mt statistic_mt mac_mt length_mt physdev_mt tcpmss_* reject_tg* trace_tg log_tg*
        notrack_tg* connlimit_mt* socket_mt* tproxy_tg* cgroup_mt* bpf_mt* iprange_* quota_mt time_mt u32_mt
        dscp_* ecn_mt* policy_mt pkttype_mt realm_mt rpfilter_* nflog_tg nfqueue_tg* classify_tg checksum_tg
        dccp_mt esp_mt l2tp_mt4 l2tp_mt6 helper_mt connbytes_mt"""),
    Row("netfilter", "ebtables {hook}", "ebtables", "ebt_* ebtable_*"),
    Row("netfilter", "flowtable", "the fast path of known flows", "nf_flow_* flow_offload_* nft_flow_offload_eval"),
    Row("netfilter", "ipvs", "IP virtual server", "ip_vs_* __ip_vs_*"),
    # IP
    Row("ip_input", "", "looks at the IP header of what came in", """
        ip_rcv* ip_list_rcv* ip_sublist_rcv* ipv6_rcv* ipv6_list_rcv* ip6_rcv* ip6_sublist_rcv* ip_options_*
        __ip_options_* ipv6_parse_hopopts ip6_parse_tlv ipv6_destopt_rcv ipv6_rthdr_rcv ip_call_ra_chain
        ip_sabotage_in"""),
    Row("ip_input", "fragments", "joins fragments", """
        ip_defrag ip_check_defrag ip_frag_queue ip_frag_reasm inet_frag_* inet_frags_* ipv6_frag_rcv ip6_frag_*"""),
    Row("local_delivery", "", "hands a packet for this host to its protocol", """
        ip_local_deliver* ip_protocol_deliver_rcu ip6_input* ip6_mc_input ip6_protocol_deliver_rcu
        ipv6_skip_exthdr"""),
    Row("forwarding", "", "sends on a packet for another host", """
        ip_forward* ip6_forward* ip_mr_* ipmr_* ip6mr_* ip6_mr_*"""),
    Row("routing", "", "where a packet goes", """
        fib_* __fib_* fib4_* fib6_* __fib6_* ip_route_* ip6_route_* __ip6_route_* ip6_pol_route* rt6_* rt_dst_*
        rt_cache_* rt_set_nexthop rt_add_uncached_list rt_del_uncached_list ip_rt_* __ip_rt_* ip6_rt_* dst_*
        __dst_* inet_addr_type* inet_dev_addr_type __inet_dev_addr_type ip_mkroute_input __mkroute_input
        __mkroute_output inet_select_addr find_exception ipv4_dst_check ip6_dst_* ipv4_mtu ip6_mtu
        ip6_mtu_from_fib6 ip_mtu_from_fib_result ipv4_default_advmss ip6_default_advmss ipv4_negative_advice
        ip6_sk_dst_* ip6_nh_* nexthop_* l3mdev_* leaf_walk_rcu ipv6_dev_get_saddr __ipv6_dev_get_saddr
        ipv6_get_saddr_eval ipv6_chk_addr* __ipv6_chk_addr* ipv6_route_* __ip_dev_find __sk_dst_check sk_dst_check
        sk_setup_caps inet_csk_route_* inet6_csk_route_* inet_csk_rebuild_route inet_sk_rebuild_header
        inet_sk_set_state inet6_sk_rebuild_header ip_multipath_* skb_dst_* ipv4_pktinfo_prepare"""),
    Row("routing", "ipsec policy", "whether IPsec is for this packet, asked also where there is none", """
        xfrm_lookup* xfrm_policy_* __xfrm_policy_* xfrm_decode_session __xfrm_decode_session decode_session4
        decode_session6 xfrm_sk_policy_lookup xfrm_bundle_lookup xfrm_resolve_and_create_bundle xfrm_selector_*"""),
    Row("ip_output", "", "makes the IP header of what goes out", """
        ip_output ip_finish_output* __ip_finish_output ip_local_out __ip_local_out ip_queue_xmit __ip_queue_xmit
        ip_mc_output ip_mc_finish_output ip_send_* ip_push_pending_frames ip_make_skb __ip_make_skb ip_append_*
        __ip_append_data ip_setup_cork ip_build_and_send_pkt ip_copy_metadata ip_reply_glue_bits
        ip_flush_pending_frames __ip_flush_pending_frames ip_cmsg_send __ip_select_ident ip_idents_reserve
        ip6_output ip6_finish_output* ip6_xmit ip6_local_out __ip6_local_out ip6_append_data __ip6_append_data
        ip6_make_skb __ip6_make_skb ip6_setup_cork ip6_send_skb ip6_push_pending_frames ip6_copy_metadata
        ip6_autoflowlabel ip6_flush_pending_frames __ip6_flush_pending_frames ip6_cork_release
        ip6_datagram_send_ctl ip6_dst_hoplimit ipv6_select_ident ipv6_push_* inet6_csk_xmit ip_skb_dst_mtu"""),
    Row("ip_output", "fragments", "cuts packets that are too long", """
        ip_fragment ip_do_fragment ip_frag_next ip_frag_init ip_fraglist_* ip6_fragment ip6_fraglist_*"""),
    Row("neighbour", "", "MAC addresses: ARP, neighbour discovery", """
        neigh_* __neigh_* ___neigh_* arp_* ndisc_* ipv4_neigh_lookup ip6_neigh_lookup ipv4_confirm_neigh
        ip6_confirm_neigh eth_header*"""),
    # transport
    Row("tcp", "", "TCP, its congestion control included", """
        tcp_* __tcp_* tcp4_* tcp6_* inet_csk_* inet6_csk_* __inet_lookup* inet_lookup* __inet6_lookup*
        inet6_lookup* inet_ehash* inet6_ehash* inet_hash* __inet_hash* inet_put_port inet_bhash* inet_bind_*
        inet_twsk_* reqsk_* inet_reqsk_* cookie_v4_* cookie_v6_* cubictcp_* bictcp_* bbr_* dctcp_* htcp_*
        sk_stream_* sk_forced_mem_schedule sk_clone* inet_sk_rx_dst_set inet6_sk_rx_dst_set __sk_backlog_rcv
        __release_sock __sk_flush_backlog skb_rbtree_purge"""),
    Row("tcp", "mptcp", "Multipath TCP", "mptcp_* __mptcp_* subflow_*"),
    Row("udp", "", "UDP", """
        udp_* __udp_* udp4_* __udp4_* udp6_* __udp6_* udpv6_* __udpv6_* udplite* __skb_recv_udp
        __first_packet_length first_packet_length skb_consume_udp compute_score __ip4_datagram_connect
        ip4_datagram_* __ip6_datagram_connect ip6_datagram_*"""),
    Row("other_transport", "icmp", "ICMP, ping, multicast groups", """
        icmp_* __icmp_* icmpv6_* icmp6_* ip_icmp_error* ipv6_icmp_error ping_* igmp_* igmpv3_* mld_* igmp6_*
        ip_mc_sf_allow inet6_mc_check ip_check_mc_rcu ip_mc_find_dev"""),
    Row("other_transport", "sctp", "SCTP", "sctp_* __sctp_*"),
    Row("other_transport", "dccp", "DCCP, up to 6.15", "dccp_* __dccp_*"),
    Row("other_transport", "raw", "raw sockets", """
        raw_local_deliver raw_rcv* raw_v4_* raw_v6_* raw_sendmsg raw_recvmsg raw_icmp_error raw_bind raw_getfrag
        rawv6_* raw6_* ipv6_raw_deliver"""),
    Row("other_transport", "packet", "packet sockets, as tcpdump uses", """
        packet_* __packet_* tpacket_* prb_* dev_queue_xmit_nit fanout_* virtio_net_hdr_*"""),
    Row("other_transport", "af_xdp", "AF_XDP sockets", "xsk_* __xsk_* xp_*"),
    Row("other_transport", "netlink", "netlink", "netlink_* __netlink_* rtnetlink_* nfnetlink_* genl_*"),
    Row("other_transport", "vsock", "sockets to virtual machines", """
        vsock_* __vsock_* virtio_transport_* vmci_transport_*"""),
    Row("other_transport", "smc", "SMC, RDS, TIPC, KCM", "smc_* __smc_* rds_* tipc_* kcm_*"),
    # copying
    Row("copy", "to user", "data of a packet to the application", """
        _copy_to_iter _copy_mc_to_iter copy_page_to_iter* copy_to_user_iter __skb_datagram_iter
        skb_copy_datagram_iter simple_copy_to_iter skb_copy_and_csum_datagram* csum_and_copy_to_iter
        csum_and_copy_to_user skb_copy_and_hash_datagram_iter skb_copy_and_crc32c_datagram_iter
        hash_and_copy_to_iter"""),
    Row("copy", "from user", "data of the application to a packet", """
        _copy_from_iter* copy_page_from_iter* copy_from_user_iter* skb_copy_datagram_from_iter*
        csum_and_copy_from_iter* csum_and_copy_from_user csum_partial_copy_* ip_generic_getfrag
        __copy_user_nocache"""),
    Row("copy", "zero copy", "pages lent instead of copied", """
        __zerocopy_sg_from_iter zerocopy_sg_from_iter __zerocopy_fill_skb_from_iter skb_zerocopy* msg_zerocopy_*
        skb_splice_from_iter iov_iter_get_pages* iov_iter_extract_pages* get_user_pages_fast*
        internal_get_user_pages_fast gup_fast* gup_pgd_range pin_user_pages* tcp_zerocopy_* net_devmem_*
        skb_splice_bits __skb_splice_bits skb_append_pagefrags"""),
    Row("copy", "check", "hardened user copy looks at the kernel's buffer", "__check_object_size __check_heap_object"),
    # towards the device
    Row("transmit_core", "", "chooses the queue of a device", """
        __dev_queue_xmit dev_queue_xmit __dev_direct_xmit validate_xmit_* netdev_core_pick_tx netdev_pick_tx
        skb_tx_hash netif_skb_features skb_csum_hwoffload_help dev_loopback_xmit passthru_features_check
        __netif_schedule __netif_reschedule netif_schedule_queue dev_pick_tx* harmonize_features"""),
    Row("transmit_core", "segment", "cuts packets that the device cannot", """
        __skb_gso_segment skb_gso_* skb_mac_gso_segment inet_gso_segment ipv6_gso_segment tcp_gso_segment
        tcp4_gso_segment tcp6_gso_segment udp4_ufo_fragment udp6_ufo_fragment __udp_gso_segment skb_segment
        skb_segment_list skb_udp_tunnel_segment __skb_udp_tunnel_segment gre_gso_segment ipip_gso_segment
        sctp_gso_segment esp4_gso_segment esp6_gso_segment skb_eth_gso_segment"""),
    Row("qdisc", "", "the queueing discipline of a device", """
        __dev_xmit_skb sch_direct_xmit __qdisc_run qdisc_* net_tx_action dequeue_skb dev_qdisc_enqueue*
        dev_requeue_skb pfifo_* bfifo_* noop_enqueue noop_dequeue fq_codel_* fq_enqueue fq_dequeue fq_classify
        fq_flow_* fq_change fq_pie_* fq_check_* codel_* tbf_* htb_* sfq_* prio_enqueue prio_dequeue prio_classify
        prio_peek cake_* red_* netem_* tfifo_* hfsc_* drr_* mq_* mqprio_* taprio_* etf_* cbs_* ets_* choke_* sfb_*
        hhf_* pie_* qfq_* multiq_* plug_* skbprio_* gred_* dualpi2_*"""),
    Row("driver_transmit", "{callee}", "what it calls is the driver's, unless another row knows it", """
        dev_hard_start_xmit xmit_one netdev_start_xmit __netdev_start_xmit"""),
    Row("checksum", "", "adds up the bytes of a packet", """
        skb_checksum* __skb_checksum* csum_partial skb_crc32c_csum_help crc32c* ip_fast_csum csum_ipv6_magic"""),
    # sockets and the way to them
    Row("socket", "", "the socket layer, the same for all protocols", """
        sock_* __sock_* sockfd_* inet_sendmsg inet6_sendmsg inet_recvmsg inet6_recvmsg inet_send_prepare
        inet_autobind inet_accept inet_stream_connect __inet_stream_connect inet_wait_for_connect
        inet_dgram_connect inet_release inet_shutdown __skb_recv_datagram skb_recv_datagram __skb_try_recv_*
        __skb_wait_for_more_packets skb_free_datagram* skb_kill_datagram __skb_free_datagram_locked datagram_poll
        put_cmsg* __scm_* scm_* move_addr_to_kernel move_addr_to_user copy_msghdr_from_user __copy_msghdr*
        import_iovec __import_iovec import_ubuf copy_iovec_from_user iovec_from_user __get_compat_msghdr do_sock_*
        do_recvmmsg ip_cmsg_recv* ip_recv_error ipv6_recv_error ip6_datagram_recv_* sk_wait_data sk_getsockopt
        sk_setsockopt sendmsg_copy_msghdr recvmsg_copy_msghdr splice_to_socket splice_direct_to_actor"""),
    Row("socket", "system call", "entry of a system call", """
        __sys_* ___sys_* ____sys_* __x64_sys_* __ia32_sys_* __arm64_sys_* __do_sys_* __se_sys_* do_syscall_64
        x64_sys_call do_fast_syscall_32 __do_fast_syscall_32 do_int80_* entry_SYSCALL_64* entry_SYSCALL_compat*
        entry_SYSRETQ* syscall_return_via_sysret el0_svc* do_el0_svc* el0t_64_sync* invoke_syscall* syscall_exit_*
        syscall_enter_* syscall_trace_* exit_to_user_mode* ksys_* vfs_read* vfs_write* vfs_iter_* new_sync_*
        do_iter_* rw_verify_area do_readv do_writev do_preadv* do_pwritev*"""),
    Row("socket", "file", "from the number to the file", "fdget* __fdget* fget* __fget* fput* __fput* ____fput"),
    Row("socket", "security", "security modules, seccomp, audit", """
        security_* selinux_* apparmor_* aa_* smack_* tomoyo_* bpf_lsm_* avc_* __seccomp_filter seccomp_*
        __secure_computing audit_* __audit_* landlock_* hook_socket_*"""),
    Row("socket", "io_uring", "io_uring", """
        io_send* io_recv* io_netmsg_* io_issue_sqe io_submit_* io_wq_* io_worker_* io_req_* __io_* io_read*
        io_write* io_rw_* io_sq_thread io_run_* io_handle_* io_fill_* io_cqring_* io_queue_* io_poll_* io_apoll_*
        io_async_* io_arm_* io_setup_async_* io_alloc_* io_free_* io_prep_* io_import_* io_put_* io_kbuf_*
        io_buffer_* io_provided_* io_file_* tctx_task_work* handle_tw_list io_uring_*"""),
    Row("socket", "splice", "files and pipes that are sent or received into", """
        splice_* do_splice* __do_splice* generic_file_splice_read filemap_* generic_file_read_iter shmem_*
        do_sendfile iter_file_splice_write pipe_* page_cache_*"""),
    # what every layer uses, and is large enough to be told apart
    Row("memory", "page pool", "pages that a driver uses again", "page_pool_* __page_pool_* napi_pp_put_page skb_pp_*"),
    Row("memory", "skb", "packets and their data, made, copied and freed", """
        __alloc_skb alloc_skb_with_frags alloc_skb_for_msg napi_alloc_* __napi_alloc_* netdev_alloc_*
        __netdev_alloc_* build_skb* __build_skb* napi_build_skb slab_build_skb napi_skb_* skb_release_*
        __kfree_skb* kfree_skb* sk_skb_reason_drop consume_skb __consume_stateless_skb napi_consume_skb
        __napi_kfree_skb __dev_kfree_skb_* dev_kfree_skb_* skb_attempt_defer_free skb_defer_free_flush
        kick_defer_list_purge skb_clone skb_copy skb_copy_expand skb_copy_ubufs skb_morph skb_copy_header
        __copy_skb_header pskb_* __pskb_* skb_expand_head skb_realloc_headroom skb_cow_data skb_try_coalesce
        skb_shift skb_split skb_append skb_share_check kmalloc_reserve skb_free_head skb_page_frag_refill
        sk_page_frag_refill tcp_stream_alloc_skb sk_stream_alloc_skb sock_alloc_send_pskb sock_alloc_send_skb
        sock_wmalloc sock_omalloc page_frag_* __page_frag_* skb_ext_* __skb_ext_* __skb_unclone_keeptruesize
        skb_condense skb_coalesce_rx_frag skb_queue_purge* __skb_queue_purge* xdp_return_* __xdp_return"""),
    Row("memory", "socket", "memory charged to sockets", """
        sock_wfree __sock_wfree sock_rfree sock_efree sock_ofree sock_rmem_free __sk_mem_* sk_free __sk_free
        sk_destruct __sk_destruct sk_prot_alloc sk_alloc mem_cgroup_charge_skmem mem_cgroup_uncharge_skmem
        mem_cgroup_sk_* sk_leave_memory_pressure"""),
    Row("memory", "slab", "the kernel's memory in small pieces", """
        kmem_cache_* __kmem_cache_* kmalloc* __kmalloc* kfree kfree_* kvfree* kvmalloc* __kvmalloc* krealloc*
        __slab_* ___slab_alloc slab_* cache_from_obj cmpxchg_double_slab __cmpxchg_double_slab memcg_slab_*
        get_partial_node* get_any_partial put_cpu_partial __put_partials __unfreeze_partials unfreeze_partials
        discard_slab allocate_slab new_slab alloc_slab_page setup_object* free_to_partial_list __refill_cpu_sheaf
        __pcs_* alloc_from_pcs free_to_pcs* rcu_free_sheaf*"""),
    Row("memory", "cgroup", "memory charged to cgroups", """
        obj_cgroup_* __memcg_* memcg_* mem_cgroup_* try_charge* refill_stock drain_stock* refill_obj_stock
        drain_obj_stock consume_obj_stock get_obj_cgroup_* current_obj_cgroup mod_objcg_* mod_memcg_*
        __mod_memcg_* mod_lruvec_* __mod_lruvec_* page_counter_*"""),
    Row("memory", "pages", "the kernel's memory in pages", """
        alloc_pages* __alloc_pages* alloc_frozen_pages* __alloc_frozen_pages* get_page_from_freelist rmqueue*
        __rmqueue* prep_new_page post_alloc_hook free_pages* __free_pages* ___free_pages free_unref_*
        free_frozen_page* __free_frozen_pages free_pcppages_bulk free_one_page __free_one_page free_page_*
        __put_page put_page __folio_put folios_put_refs release_pages __page_cache_release clear_page*
        get_pfnblock_* __zone_watermark_* zone_watermark_* mod_zone_* __mod_zone_* mod_node_* __mod_node_*
        __get_free_pages get_zeroed_page* try_to_free_* shrink_*"""),
    Row("memory", "page fault", "the application's buffer was not there", """
        asm_exc_page_fault exc_page_fault do_user_addr_fault handle_mm_fault __handle_mm_fault do_anonymous_page
        do_mem_abort do_translation_fault do_page_fault lock_vma_under_rcu"""),
    Row("memory", "dma", "memory made known to devices", """
        dma_* __dma_* iommu_* __iommu_* iova_* swiotlb_* intel_iommu_* amd_iommu_*"""),
    Row("locks", "spin", "waits for and takes spin locks", """
        _raw_spin_lock* _raw_spin_trylock* _raw_read_lock* _raw_write_lock* __raw_spin_lock*
        native_queued_spin_lock_slowpath queued_spin_lock_slowpath __pv_queued_spin_lock_slowpath kvm_wait
        queued_read_lock_slowpath queued_write_lock_slowpath rt_spin_lock* rtlock_* rt_read_lock rt_write_lock
        __rt_spin_lock* resilient_*"""),
    Row("locks", "socket", "takes and gives a socket", """
        lock_sock_nested lock_sock_fast __lock_sock __lock_sock_fast release_sock"""),
    Row("locks", "sleep", "waits for and takes locks that may sleep", """
        mutex_lock* __mutex_lock* mutex_trylock mutex_spin_on_owner osq_lock rwsem_* down_read* down_write*
        __down_read* __down_write* rt_mutex_* __rt_mutex_* percpu_down_* __percpu_down_* down_interruptible
        down_trylock"""),
    Row("scheduling", "wake-up", "wakes the task that waits for data or for room", """
        try_to_wake_up ttwu_* __wake_up* wake_up_* default_wake_function autoremove_wake_function
        receiver_wake_function woken_wake_function pollwake ep_poll_callback ep_autoremove_wake_function
        io_poll_wake sock_def_readable sock_def_write_space* sock_def_wakeup sock_wake_async sk_stream_write_space
        select_task_rq* select_idle_* available_idle_cpu wake_affine find_idlest_* sched_ttwu_pending
        activate_task check_preempt_* wakeup_preempt* resched_curr* __resched_curr enqueue_task* enqueue_entity
        place_entity swake_up_* wakeup_softirqd native_smp_send_reschedule native_send_call_func_single_ipi
        smp_call_function_single* generic_exec_single __smp_call_single_queue send_call_function_single_ipi
        call_function_single_prep_ipi kick_process irq_work_queue* kill_fasync"""),
    Row("scheduling", "switch", "puts a task to sleep, and the next in its place", """
        schedule schedule_* __schedule io_schedule* preempt_schedule* prepare_to_wait* finish_wait wait_woken
        add_wait_queue* remove_wait_queue dequeue_task* dequeue_entity dequeue_entities pick_next_* pick_task_*
        pick_eevdf* put_prev_* set_next_* __pick_next_* update_curr* update_load_avg update_cfs_group
        update_rq_clock* reweight_entity avg_vruntime psi_* finish_task_switch* switch_mm* context_switch
        __switch_to* newidle_balance sched_balance_* deactivate_task __cond_resched* yield_to do_wait_intr*
        bit_wait* __perf_event_task_sched_* sched_core_*"""),
    Row("crypto", "tls", "TLS in the kernel", "tls_* __tls_* bpf_exec_tx_verdict"),
    Row("crypto", "ipsec", "IPsec", """
        xfrm_* __xfrm_* xfrm4_* xfrm6_* esp_* esp4_* esp6_* ah_* ah4_* ah6_* ipcomp_*"""),
    Row("crypto", "cipher", "ciphers and digests", """
        crypto_* __crypto_* aes_* aesni_* __aes_* gcm_* gcmaes_* rfc4106_* ghash_* chacha_* chacha20* __chacha*
        poly1305_* curve25519* blake2s_* sha1_* sha256_* sha512_* __sha* hmac_* macsec_* padata_* cryptd_*
        simd_aead_* shash_* scatterwalk_* skcipher_*"""),
    Row("accounting", "time", "looks at the clock, and time stamps", """
        ktime_get* __ktime_get* timekeeping_* read_tsc kvm_clock_* pvclock_* read_hpet sched_clock* local_clock*
        native_sched_clock arch_counter_get_* skb_tstamp_* __skb_tstamp_* __skb_complete_tx_timestamp
        skb_complete_* skb_clone_tx_timestamp skb_defer_rx_timestamp __sock_recv_timestamp* __sock_recv_cmsgs
        __sock_tx_timestamp put_cmsg_scm_timestamping*"""),
    Row("accounting", "cpu", "the kernel's own book-keeping of time and timers", """
        irqtime_* account_* __account_* vtime_* cpuacct_* update_process_times acct_* cgroup_rstat_* task_tick_*
        scheduler_tick sched_tick tick_* __tick_* update_wall_time hrtimer_interrupt __hrtimer_run_queues
        run_timer_softirq __run_timers* rcu_core* rcu_do_batch rcu_sched_clock_irq"""),
)

# BPF programs count to XDP or tc where one of these is outside of them, and no function of another row in between.
PROGRAM_ROWS: Final = (
    Row("xdp", "{program}", "run by a driver's poll, or in its stead", """
        __napi_poll napi_poll net_rx_action napi_threaded_poll napi_threaded_poll_loop napi_busy_loop*
        __napi_busy_loop bpf_prog_run_generic_xdp netif_receive_generic_xdp do_xdp_generic bpf_dispatcher_xdp*
        dev_map_bpf_prog_run* cpu_map_bpf_prog_run* cpu_map_kthread_run bq_xmit_all xdp_test_run_batch
        tun_build_skb tun_xdp_one"""),
    Row("tc", "{program}", "run as a classifier or an action; since 6.6 also where a packet enters and leaves", """
        tcf_classify* cls_bpf_classify tcf_bpf_act tc_run tcx_run sch_handle_ingress sch_handle_egress
        __netif_receive_skb_core __dev_queue_xmit netkit_xmit"""),
)

# Netfilter's hook, by the nearest of these outside of what netfilter ran.
HOOKS: Final = (
    Row("netfilter", "prerouting", "IP, before routing", """
        ip_rcv ip_list_rcv ip_sublist_rcv ipv6_rcv ipv6_list_rcv ip6_sublist_rcv xfrm4_transport_finish
        xfrm6_transport_finish br_nf_pre_routing br_nf_pre_routing_ipv6"""),
    Row("netfilter", "input", "IP, for this host", "ip_local_deliver ip6_input ip6_mc_input"),
    Row("netfilter", "forward", "IP, for another host", """
        ip_forward ip6_forward ipmr_queue_xmit ip6mr_forward2 ipmr_queue_fwd_xmit br_nf_forward br_nf_forward_ip"""),
    Row("netfilter", "output", "IP, from this host", """
        ip_local_out __ip_local_out ip6_local_out __ip6_local_out ip6_xmit raw_sendmsg rawv6_sendmsg"""),
    Row("netfilter", "postrouting", "IP, before the device", """
        ip_output ip_mc_output ip6_output ip6_finish_output xfrm_output_resume xfrm4_output xfrm6_output
        __xfrm6_output br_nf_post_routing"""),
    Row("netfilter", "bridge", "the bridge; br_netfilter calls the hooks of IP from there", "br_* __br_* ebt_*"),
    Row("netfilter", "arp", "ARP", "arp_rcv arp_xmit"),
    Row("netfilter", "ingress", "behind the driver", "__netif_receive_skb_core nf_ingress"),
    Row("netfilter", "egress", "before the qdisc", "__dev_queue_xmit"),
)
# fmt: on

# A helper of a BPF program that sends a packet through the stack: what is done in it is not the program's.
LEAVES_PROGRAM: Final = frozenset({"bpf_clone_redirect", "____bpf_clone_redirect"})

CATEGORIES: Final = (*dict.fromkeys(row.category for row in ROWS), OTHER, UNSAMPLED)
