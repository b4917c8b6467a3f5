# SPDX-License-Identifier: Apache-2.0
"""THE table of the functions that timers, tasklets and work items run for the network stack, for kernels 5.10 to 7.x.

Timers, tasklets and work queues serve the whole kernel; the function that one runs tells whose it is. A pattern is the
name of a function; ``*`` stands for any part of it but its first two letters. Device drivers are not in the table, but
for those of virtual devices, nor are users of sockets in the kernel, such as NFS: their work is not the stack's.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

# fmt: off
CALLBACKS: Final = {
    "TCP": """
        tcp_write_timer tcp_delack_timer tcp_keepalive_timer tcp_pace_kick tcp_compressed_ack_kick tcp_tasklet_func
        tcp_tsq_workfn tcp_orphan_update tw_timer_handler reqsk_timer_handler""",
    "other transport": """
        mptcp_worker mptcp_retransmit_timer mptcp_timeout_timer mptcp_tout_timer mptcp_pm_add_timer sctp_generate_*
        sctp_addr_wq_timeout_handler dccp_write_timer dccp_keepalive_timer dccp_delack_timer dccp_write_xmitlet
        vsock_connect_timeout vsock_pending_work vsock_loopback_work virtio_transport_*_work
        virtio_transport_close_timeout""",
    "IP": """
        ip_expire ip6_frag_expire fqdir_work_fn fqdir_free_fn inet_frags_free_cb igmp_gq_timer_expire
        igmp_ifc_timer_expire igmp_timer_expire mld_*_work addrconf_rs_timer addrconf_dad_work addrconf_verify_work
        fib6_gc_timer_cb ip6_fl_gc ipmr_expire_process ipmr_do_expire_process""",
    "neighbours": "neigh_timer_handler neigh_proxy_process neigh_periodic_work neigh_managed_work",
    "IPsec": """
        xfrm_timer_handler xfrm_replay_timer_handler xfrm_policy_timer xfrm_policy_queue_process xfrm_trans_reinject
        xfrm_state_gc_task xfrm_hash_resize xfrm_hash_rebuild nat_keepalive_work iptfs_delay_timer iptfs_drop_timer
        padata_parallel_worker padata_serial_worker invoke_padata_reorder""",
    "WireGuard": "wg_packet_*_worker wg_expired_* wg_queued_expired_zero_key_material wg_ratelimiter_gc_entries",
    "netfilter": """
        gc_worker tree_gc_worker ecache_work nf_ct_frag6_expire nf_ct_expectation_timed_out nf_flow_offload_work_gc
        flow_offload_work_handler nft_rhash_gc nft_trans_gc_work nf_tables_trans_destroy_work iterate_cleanup_work
        htable_gc hash_*_gc bitmap_*_gc list_set_gc nfulnl_timer ip_vs_conn_expire ip_vs_sync_conn_expire
        defense_work_handler est_reload_work_handler expire_nodest_conn_handler idletimer_tg_expired
        idletimer_tg_work""",
    "traffic control": """
        qdisc_watchdog dev_watchdog est_timer red_adaptative_timer pie_timer fq_pie_timer sfq_perturbation
        advance_sched gate_timer_func htb_work_func fl_destroy_filter_work flow_destroy_filter_work
        mall_destroy_work cls_cgroup_destroy_work basic_delete_filter_work fw_delete_filter_work
        route4_delete_filter_work cls_bpf_delete_prog_work u32_delete_key_work u32_delete_key_freepf_work""",
    "devices in general": """
        napi_watchdog flush_backlog linkwatch_event cleanup_net netstamp_clear page_pool_release_retry queue_process
        prb_retire_rx_blk_timer_expired xdp_umem_release_deferred sk_psock_backlog sk_psock_destroy strp_work
        strp_msg_timeout tx_work_handler sock_diag_broadcast_destroy_work udp_tunnel_nic_device_sync_work""",
    "virtual devices": """
        br_*_expired br_fdb_cleanup br_multicast_*_work bond_*_monitor bond_*_handler bond_*_arp_mon bond_*_work
        bond_resend_igmp_join_requests_delayed lb_stats_refresh macvlan_process_broadcast ipvlan_process_multicast
        vxlan_cleanup hsr_announce hsr_prune_nodes l2tp_tunnel_del_work l2tp_session_del_work
        ovs_dp_masks_rebalance refill_work virtnet_*_work""",
}
# fmt: on


def _alternatives(names: Iterable[str]) -> str:
    """Return what matches any of the patterns; by their first letters, which is several times faster to search."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        groups[name[:2]].append(re.escape(name[2:]).replace(r"\*", r"\w*"))
    return "|".join(f"{start}(?:{'|'.join(rest)})" for start, rest in sorted(groups.items()))


_PATTERN: Final = _alternatives(name for names in CALLBACKS.values() for name in names.split())
# A line of /proc/kallsyms: address, type, name, what the compiler appended, module.
CALLBACK_LINE: Final = re.compile(
    rf"^([0-9a-f]+) [tTwW] (?:{_PATTERN})(?:\.(?!cold)[\w.]+)?(?:\t\[\w+\])?$".encode(), re.MULTILINE
)
_NAME: Final = re.compile(_PATTERN)


def is_network_callback(name: str) -> bool:
    """Tell whether a function is run for the network stack by a timer, a tasklet or a work item."""
    return bool(_NAME.fullmatch(name))
