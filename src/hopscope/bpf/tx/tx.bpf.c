// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Transmit latency, hop by hop: where the programs are attached. Bodies are in the headers, and several attachments share
 * one: of these user space loads one (hopscope.probes.catalogue has the table).
 */
#include "tx/device.h"
#include "tx/send.h"
#include "tx/sockets.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* ---- the send call ---- */

SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(tx_tcp_send_tp, struct sock *sk, struct msghdr *msg)
{
	return tcp_send_enters(sk, msg, false);
}

SEC("fentry/tcp_sendmsg_locked")
int BPF_PROG(tx_tcp_send_fentry, struct sock *sk, struct msghdr *msg)
{
	return tcp_send_enters(sk, msg, true);
}

SEC("kprobe/tcp_sendmsg_locked")
int BPF_KPROBE(tx_tcp_send_kprobe, struct sock *sk, struct msghdr *msg)
{
	traced_enter(sk, msg, true);
	return 0;
}

SEC("fentry/udp_sendmsg")
int BPF_PROG(tx_udp_send_fentry, struct sock *sk)
{
	send_enters(sk, 0);
	return 0;
}

SEC("fentry/udpv6_sendmsg")
int BPF_PROG(tx_udp6_send_fentry, struct sock *sk)
{
	send_enters(sk, 0);
	return 0;
}

SEC("kprobe/udp_sendmsg")
int BPF_KPROBE(tx_udp_send_kprobe, struct sock *sk)
{
	send_enters(sk, 0);
	return 0;
}

SEC("kprobe/udpv6_sendmsg")
int BPF_KPROBE(tx_udp6_send_kprobe, struct sock *sk)
{
	send_enters(sk, 0);
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(tx_send_call_tp, struct pt_regs *regs, u64 number)
{
	return system_call_enters(regs, number);
}

/* ---- below TCP and UDP ---- */

/* A packet comes to a device. */
SEC("tp_btf/net_dev_queue")
int BPF_PROG(tx_queue, struct sk_buff *skb)
{
	return device_takes(skb);
}

/* It has left the queueing discipline, the driver's function is called. */
SEC("tp_btf/net_dev_start_xmit")
int BPF_PROG(tx_start_xmit, struct sk_buff *skb)
{
	return driver_begins(skb);
}

/* The driver's function has returned. The packet may be gone: its address is all that is left. */
SEC("tp_btf/net_dev_xmit")
int BPF_PROG(tx_xmit, u64 skb, s32 result, struct net_device *dev)
{
	return driver_returns(skb, result, dev);
}

SEC("tp_btf/consume_skb")
int BPF_PROG(tx_consumed, struct sk_buff *skb)
{
	datagram_freed(skb, false);
	return 0;
}

SEC("tp_btf/kfree_skb")
int BPF_PROG(tx_dropped, struct sk_buff *skb)
{
	datagram_freed(skb, true);
	return 0;
}

/* ---- TCP, by tracing ---- */

SEC("tp_btf/tcp_probe")
int BPF_PROG(tx_ack, struct sock *sk, struct sk_buff *skb)
{
	traced_ack(sk, skb);
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(tx_state_tp, struct sock *sk, s32 from, s32 to)
{
	if (to == TCP_CLOSE)
		traced_closes(sk);
	else if (from == TCP_SYN_SENT)
		traced_opens(sk);
	return 0;
}

/* ---- TCP, by the kernel's time stamps ---- */

/* Before TCP works on an ACK. */
SEC("tp_btf/tcp_probe")
int BPF_PROG(tx_arrives, struct sock *sk)
{
	stamped_arrives(sk);
	return 0;
}

SEC("sockops")
int tx_stamped(struct bpf_sock_ops *ctx)
{
	stamped_event(ctx);
	return 1;
}

SEC("iter/tcp")
int tx_switch_on(struct bpf_iter__tcp *ctx)
{
	return switch_on(ctx->sk_common);
}

SEC("iter/tcp")
int tx_switch_off(struct bpf_iter__tcp *ctx)
{
	return switch_off(ctx->sk_common);
}
