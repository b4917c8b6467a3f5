// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Receive latency, hop by hop: where the programs are attached. Bodies are in the headers, and several attachments share
 * one: of these user space loads one (hopscope.probes.catalogue has the table).
 */
#include "rx/drop.h"
#include "rx/entry.h"
#include "rx/protocol.h"
#include "rx/read.h"
#include "rx/socket.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* ---- the CPU's way to the packet ---- */

SEC("tp_btf/softirq_raise")
int BPF_PROG(rx_softirq_raise, u32 vector)
{
	return softirq_raised(vector);
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(rx_softirq_entry, u32 vector)
{
	return softirq_enters(vector);
}

SEC("tp_btf/napi_poll")
int BPF_PROG(rx_napi_poll, struct napi_struct *napi, s32 work, s32 budget)
{
	return poll_ends(napi, budget);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(rx_sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return reader_switch(prev, next);
}

/* ---- the packet enters ---- */

SEC("tp_btf/netif_rx")
int BPF_PROG(rx_netif_rx, struct sk_buff *skb)
{
	return driver_hands_over(skb);
}

SEC("tp_btf/napi_gro_receive_entry")
int BPF_PROG(rx_napi_gro_receive, struct sk_buff *skb)
{
	return driver_hands_over(skb);
}

SEC("tp_btf/napi_gro_frags_entry")
int BPF_PROG(rx_napi_gro_frags, struct sk_buff *skb)
{
	return driver_hands_over(skb);
}

SEC("tp_btf/netif_receive_skb_entry")
int BPF_PROG(rx_netif_receive, struct sk_buff *skb)
{
	return driver_hands_over(skb);
}

SEC("tp_btf/netif_receive_skb_list_entry")
int BPF_PROG(rx_netif_receive_list, struct sk_buff *skb)
{
	return driver_hands_over(skb);
}

SEC("tp_btf/netif_receive_skb")
int BPF_PROG(rx_core, struct sk_buff *skb)
{
	return core_takes(skb);
}

/* ---- IP, TCP and UDP begin ---- */

SEC("fentry/ip_rcv_core")
int BPF_PROG(rx_ip_fentry, struct sk_buff *skb)
{
	return reach_traced(skb, HOP_RX_IP, HOP_STAGE_IP);
}

SEC("fentry/ip6_rcv_core")
int BPF_PROG(rx_ip6_fentry, struct sk_buff *skb)
{
	return reach_traced(skb, HOP_RX_IP, HOP_STAGE_IP);
}

SEC("kprobe/ip_rcv_core")
int BPF_KPROBE(rx_ip_kprobe, struct sk_buff *skb)
{
	return reach_probed(skb, HOP_RX_IP, HOP_STAGE_IP);
}

SEC("kprobe/ip6_rcv_core")
int BPF_KPROBE(rx_ip6_kprobe, struct sk_buff *skb)
{
	return reach_probed(skb, HOP_RX_IP, HOP_STAGE_IP);
}

/* User space sets the type: libbpf knows this section only from 1.3 on. */
SEC("netfilter")
int rx_ip_netfilter(struct bpf_nf_ctx *ctx)
{
	reach_traced(ctx->skb, HOP_RX_IP, HOP_STAGE_IP);
	return 1; /* NF_ACCEPT */
}

SEC("fentry/tcp_v4_rcv")
int BPF_PROG(rx_tcp_fentry, struct sk_buff *skb)
{
	return reach_traced(skb, HOP_RX_TCP, HOP_STAGE_L4);
}

SEC("fentry/tcp_v6_rcv")
int BPF_PROG(rx_tcp6_fentry, struct sk_buff *skb)
{
	return reach_traced(skb, HOP_RX_TCP, HOP_STAGE_L4);
}

SEC("fentry/udp_rcv")
int BPF_PROG(rx_udp_fentry, struct sk_buff *skb)
{
	return reach_traced(skb, HOP_RX_UDP, HOP_STAGE_L4);
}

SEC("fentry/udpv6_rcv")
int BPF_PROG(rx_udp6_fentry, struct sk_buff *skb)
{
	return reach_traced(skb, HOP_RX_UDP, HOP_STAGE_L4);
}

SEC("kprobe/tcp_v4_rcv")
int BPF_KPROBE(rx_tcp_kprobe, struct sk_buff *skb)
{
	return reach_probed(skb, HOP_RX_TCP, HOP_STAGE_L4);
}

SEC("kprobe/tcp_v6_rcv")
int BPF_KPROBE(rx_tcp6_kprobe, struct sk_buff *skb)
{
	return reach_probed(skb, HOP_RX_TCP, HOP_STAGE_L4);
}

SEC("kprobe/udp_rcv")
int BPF_KPROBE(rx_udp_kprobe, struct sk_buff *skb)
{
	return reach_probed(skb, HOP_RX_UDP, HOP_STAGE_L4);
}

SEC("kprobe/udpv6_rcv")
int BPF_KPROBE(rx_udp6_kprobe, struct sk_buff *skb)
{
	return reach_probed(skb, HOP_RX_UDP, HOP_STAGE_L4);
}

SEC("cgroup_skb/ingress")
int rx_l4_cgroup(struct __sk_buff *ctx)
{
	reach_filter(bpf_cast_to_kern_ctx(ctx));
	return 1;
}

/* ---- the socket takes the packet ---- */

SEC("tp_btf/tcp_probe")
int BPF_PROG(rx_tcp_queue_tp, struct sock *sk, struct sk_buff *skb)
{
	return tcp_queue_traced(sk, skb);
}

SEC("fentry/tcp_rcv_state_process")
int BPF_PROG(rx_tcp_closing_fentry, struct sock *sk, struct sk_buff *skb)
{
	return tcp_queue_closing(sk, skb);
}

SEC("kprobe/tcp_rcv_established")
int BPF_KPROBE(rx_tcp_queue_kprobe, struct sock *sk, struct sk_buff *skb)
{
	return tcp_queue_probed(sk, skb);
}

SEC("fexit/__udp_enqueue_schedule_skb")
int BPF_PROG(rx_udp_queue_fexit, struct sock *sk, struct sk_buff *skb, int error)
{
	return error ? 0 : udp_queue_traced(sk, skb); /* refused: the buffer is full */
}

SEC("kprobe/__udp_enqueue_schedule_skb")
int BPF_KPROBE(rx_udp_queue_kprobe, struct sock *sk, struct sk_buff *skb)
{
	return udp_queue_probed(sk, skb);
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(rx_ready, struct sock *sk)
{
	return socket_ready(sk);
}

/* ---- what goes no further ---- */

SEC("tp_btf/kfree_skb")
int BPF_PROG(rx_drop, struct sk_buff *skb, void *location)
{
	return packet_dropped(skb, cfg_drop_arguments > 2 ? ctx[2] : 0);
}

SEC("tp_btf/tcp_destroy_sock")
int BPF_PROG(rx_tcp_destroy, struct sock *sk)
{
	return tcp_destroyed(sk);
}

SEC("fentry/ip_forward")
int BPF_PROG(rx_forward_fentry, struct sk_buff *skb)
{
	return packet_sent_on(address(skb->head));
}

SEC("fentry/ip6_forward")
int BPF_PROG(rx_forward6_fentry, struct sk_buff *skb)
{
	return packet_sent_on(address(skb->head));
}

SEC("kprobe/ip_forward")
int BPF_KPROBE(rx_forward_kprobe, struct sk_buff *skb)
{
	return packet_sent_on((u64)BPF_CORE_READ(skb, head));
}

SEC("kprobe/ip6_forward")
int BPF_KPROBE(rx_forward6_kprobe, struct sk_buff *skb)
{
	return packet_sent_on((u64)BPF_CORE_READ(skb, head));
}

SEC("netfilter")
int rx_forward_netfilter(struct bpf_nf_ctx *ctx)
{
	packet_sent_on(address(ctx->skb->head));
	return 1; /* NF_ACCEPT */
}

/* ---- the application reads ---- */

SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(rx_tcp_read_tp, struct sock *sk)
{
	return tcp_read_traced(sk);
}

SEC("kprobe/tcp_rcv_space_adjust")
int BPF_KPROBE(rx_tcp_read_kprobe, struct sock *sk)
{
	return tcp_read_probed(sk);
}

SEC("fentry/skb_consume_udp")
int BPF_PROG(rx_udp_read_fentry, struct sock *sk, struct sk_buff *skb)
{
	return udp_consume_traced(skb);
}

SEC("kprobe/skb_consume_udp")
int BPF_KPROBE(rx_udp_read_kprobe, struct sock *sk, struct sk_buff *skb)
{
	return udp_consume_probed(skb);
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(rx_udp_read_tp, struct sock *sk, s32 len_bytes, u32 flags)
{
	return udp_call_returns(sk, len_bytes, flags);
}
