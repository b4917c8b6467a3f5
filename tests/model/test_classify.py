# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from hopscope.model.classify import classify, program_name

PROGRAM = "bpf_prog_6deef7357e7b4530_count"
HELPER = "bpf_prog_0123456789abcdef_parse"
POLL = "handle_softirqs net_rx_action __napi_poll"
CORE = f"{POLL} process_backlog __netif_receive_skb_one_core"
CALL = "do_syscall_64 __x64_sys_sendto"
SPLIT = "validate_xmit_skb __skb_gso_segment inet_gso_segment"


def found(stack: str, *own: str) -> tuple[str, str]:
    return tuple(classify(tuple(stack.split()), own))


@pytest.mark.parametrize(
    ("stack", "category", "detail"),
    [
        ("", "other", ""),
        ("unheard_of 0xffffffffc0000000", "other", ""),
        (f"{POLL} veth_poll veth_xdp_rcv unheard_of", "driver_poll", "veth_poll"),
        (f"{POLL}", "driver_poll", ""),
        (f"{POLL} __list_del_entry_valid_or_report", "driver_poll", ""),
        (f"{POLL} veth_poll napi_gro_receive dev_gro_receive inet_gro_receive", "gro", ""),
        (f"{CORE} ip_rcv memcpy", "ip_input", ""),
        (f"{CORE} ip_local_deliver_finish ip_protocol_deliver_rcu tcp_v4_rcv", "tcp", ""),
        (f"{CORE} tcp_v4_rcv tcp_v4_do_rcv tcp_data_queue sock_def_readable", "scheduling", "wake-up"),
        (f"{CORE} tcp_v4_rcv _raw_spin_lock native_queued_spin_lock_slowpath", "locks", "spin"),
        # The timer that samples waits for interrupts: unlocking lets it go off.
        (f"{CORE} sock_def_readable __wake_up_sync_key _raw_spin_unlock_irqrestore", "scheduling", "wake-up"),
        (f"{CORE} tcp_v4_rcv _raw_spin_unlock", "tcp", ""),
        (f"{CALL} skb_copy_datagram_iter _copy_to_iter rep_movs_alternative", "copy", "to user"),
        (f"{CALL} udp_sendmsg ip_make_skb ip_generic_getfrag _copy_from_iter", "copy", "from user"),
        (f"{CALL} move_addr_to_kernel _copy_from_user rep_movs_alternative", "socket", ""),
        (f"{CALL} tcp_stream_alloc_skb __alloc_skb kmem_cache_alloc", "memory", "slab"),
        (CALL, "socket", "system call"),
        ("__dev_queue_xmit dev_hard_start_xmit veth_xmit unheard_of", "driver_transmit", "veth_xmit"),
        ("__dev_queue_xmit sch_direct_xmit", "qdisc", ""),
        (f"{CORE} vxlan_rcv", "tunnel", "vxlan"),
        (f"{CORE} vxlan_gro_receive", "gro", ""),
        (f"{SPLIT} tcp4_gso_segment", "transmit_core", "segment"),
    ],
)
def test_the_innermost_known_function_decides(stack: str, category: str, detail: str) -> None:
    assert found(stack) == (category, detail)


@pytest.mark.parametrize(
    ("stack", "detail"),
    [
        (f"{CORE} ip_rcv nf_hook_slow", "prerouting"),
        (f"{CORE} ip_rcv nf_hook_slow nft_do_chain_ipv4 nft_do_chain unheard_of", "nft prerouting"),
        (f"{CORE} ip_rcv ip_sabotage_in ip_output nf_hook_slow ipt_do_table tcp_mt", "iptables postrouting"),
        (f"{CORE} ip_sublist_rcv nf_hook_slow_list", "prerouting"),
        (f"{CORE} ip_local_deliver nf_hook_slow nft_do_chain", "nft input"),
        (f"{CORE} ip_forward nf_hook_slow nft_do_chain", "nft forward"),
        ("udp_sendmsg ip_send_skb __ip_local_out nf_hook_slow nft_do_chain", "nft output"),
        ("tcp_sendmsg ip6_xmit nf_hook_slow nft_do_chain", "nft output"),
        (f"{CORE} __netif_receive_skb_core br_handle_frame nft_do_chain_bridge nft_do_chain", "nft bridge"),
        (f"{CORE} __netif_receive_skb_core br_handle_frame br_nf_pre_routing", "bridge"),
        (f"{CORE} br_handle_frame br_nf_pre_routing nf_hook_slow nft_do_chain", "nft prerouting"),
        (f"{CORE} br_handle_frame ebt_do_table", "ebtables bridge"),
        (f"{CORE} __netif_receive_skb_core nf_hook_slow nft_do_chain_netdev", "nft ingress"),
        ("__dev_queue_xmit nf_hook_slow nft_do_chain_netdev", "nft egress"),
        (f"{CORE} arp_rcv nf_hook_slow", "arp"),
        ("nfqnl_recv_verdict nf_reinject nft_do_chain", "nft"),
    ],
)
def test_netfilter_is_told_by_hook_and_by_kind_of_table(stack: str, detail: str) -> None:
    assert found(stack) == ("netfilter", detail)


def test_conntrack_and_nat_at_a_hook_are_their_own() -> None:
    assert found(f"{CORE} ip_rcv nf_hook_slow nf_conntrack_in")[0] == "conntrack"
    assert found(f"{CORE} ip_rcv nf_hook_slow nf_nat_inet_fn nf_nat_packet")[0] == "nat"
    assert found(f"{CORE} ip_rcv nf_hook_slow nf_nat_inet_fn nft_do_chain") == ("netfilter", "nft prerouting")


@pytest.mark.parametrize(
    ("stack", "category"),
    [
        (f"{POLL} virtnet_poll receive_buf {PROGRAM}", "xdp"),
        (f"{POLL} veth_poll veth_xdp_rcv_skb bpf_dispatcher_xdp_func {PROGRAM} ktime_get_mono_fast_ns", "xdp"),
        (f"{CORE} __netif_receive_skb_core do_xdp_generic bpf_prog_run_generic_xdp {PROGRAM}", "xdp"),
        (f"{CORE} __netif_receive_skb_core {PROGRAM}", "tc"),
        (f"{CORE} __netif_receive_skb_core tc_run tcf_classify cls_bpf_classify {PROGRAM} kmem_cache_alloc", "tc"),
        (f"__dev_queue_xmit tcf_classify cls_bpf_classify {PROGRAM} htab_map_update_elem _raw_spin_lock", "tc"),
        (f"__dev_queue_xmit {PROGRAM}", "tc"),
        (f"{CORE} ip_local_deliver tcp_v4_rcv sk_filter_trim_cap __cgroup_bpf_run_filter_skb {PROGRAM}", "bpf"),
        (f"{CORE} __netif_receive_skb_core __traceiter_netif_receive_skb bpf_trace_run1 {PROGRAM}", "bpf"),
        (f"{POLL} veth_poll __traceiter_xdp_exception bpf_trace_run1 {PROGRAM}", "bpf"),
        (f"{POLL} veth_poll netif_receive_skb packet_rcv {PROGRAM}", "bpf"),
        (f"{CORE} ip_rcv nf_hook_slow nf_hook_run_bpf {PROGRAM}", "bpf"),
        (f"unheard_of {PROGRAM}", "bpf"),
    ],
)
def test_what_a_program_does_is_counted_where_it_runs(stack: str, category: str) -> None:
    assert found(stack) == (category, "count")


def test_functions_of_a_program_are_the_programs() -> None:
    assert found(f"{POLL} veth_poll {PROGRAM} bpf_loop {HELPER}") == ("xdp", "count")
    # Another program that traces the first one is another program.
    assert found(f"{POLL} veth_poll {PROGRAM} bpf_trampoline_1 {HELPER}") == ("bpf", "parse")


def test_a_packet_that_a_program_sends_is_not_the_programs() -> None:
    stack = f"{POLL} tcf_classify {PROGRAM} bpf_clone_redirect __bpf_redirect __dev_queue_xmit sch_direct_xmit"
    assert found(stack) == ("qdisc", "")
    assert found(f"{POLL} tcf_classify {PROGRAM} bpf_clone_redirect") == ("tc", "count")


def test_hopscopes_own_programs_are_told_by_the_beginning_of_their_names() -> None:
    stack = f"{CORE} __bpf_trace_napi_poll bpf_trace_run3 bpf_prog_6deef7357e7b4530_cpu_enter ktime_get"
    assert found(stack, "rx_", "cpu_") == ("bpf", "hopscope")
    assert found(stack, "rx_") == ("bpf", "cpu_enter")


def test_name_of_a_program() -> None:
    assert program_name("bpf_prog_6deef7357e7b4530_my_prog") == "my_prog"
    assert program_name("bpf_prog_6deef7357e7b4530") == "6deef7357e7b4530"
    assert program_name("bpf_prog_run_generic_xdp") is None
    assert program_name("bpf_prog_6deef7357e7b453_short") is None
    assert program_name("tcp_ack") is None
