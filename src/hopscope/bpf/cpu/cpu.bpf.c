// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* CPU cost: where the programs are attached. Bodies are in the headers, and several attachments share one: of these user
 * space loads one (hopscope.probes.catalogue.cpu has the table).
 */
#include "cpu/callbacks.h"
#include "cpu/calls.h"
#include "cpu/interrupts.h"
#include "cpu/sample.h"
#include "cpu/threads.h"
#include "cpu/uring.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* ---- hard interrupts ---- */

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(cpu_irq_entry, u32 number)
{
	return device_irq_begins(number);
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(cpu_irq_exit)
{
	return irq_ends();
}

/* Interrupts that have no device: timers, and those of one CPU to another. */
#define OTHER_INTERRUPT(name)                                                                                          \
	SEC("tp_btf/" #name "_entry")                                                                                  \
	int BPF_PROG(cpu_##name##_entry)                                                                               \
	{                                                                                                              \
		return irq_begins(this_cpu(), HOP_CPU_NOTHING, 0);                                                     \
	}                                                                                                              \
	SEC("tp_btf/" #name "_exit")                                                                                   \
	int BPF_PROG(cpu_##name##_exit)                                                                                \
	{                                                                                                              \
		return irq_ends();                                                                                     \
	}

OTHER_INTERRUPT(local_timer)
OTHER_INTERRUPT(reschedule)
OTHER_INTERRUPT(call_function)
OTHER_INTERRUPT(call_function_single)
OTHER_INTERRUPT(irq_work)
OTHER_INTERRUPT(ipi)

/* ---- softirqs and polls ---- */

SEC("tp_btf/softirq_entry")
int BPF_PROG(cpu_softirq_entry, u32 vector)
{
	return softirq_begins(vector);
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(cpu_softirq_exit)
{
	return softirq_ends();
}

SEC("tp_btf/napi_poll")
int BPF_PROG(cpu_napi_poll, struct napi_struct *napi, u32 packets)
{
	return poll_ends(napi, packets);
}

/* ---- timers, tasklets, work items ---- */

SEC("tp_btf/timer_expire_entry")
int BPF_PROG(cpu_timer_expire_entry, struct timer_list *timer)
{
	return timer_begins(timer->function);
}

SEC("tp_btf/timer_expire_exit")
int BPF_PROG(cpu_timer_expire_exit)
{
	return timer_ends();
}

SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(cpu_hrtimer_expire_entry, struct hrtimer *timer)
{
	return timer_begins(timer->function);
}

SEC("tp_btf/hrtimer_expire_exit")
int BPF_PROG(cpu_hrtimer_expire_exit)
{
	return timer_ends();
}

SEC("tp_btf/tasklet_entry")
int BPF_PROG(cpu_tasklet_entry, void *tasklet, void *function)
{
	return tasklet_begins(function);
}

SEC("tp_btf/tasklet_exit")
int BPF_PROG(cpu_tasklet_exit)
{
	return tasklet_ends();
}

/* Where there are no tracepoints of tasklets. */
SEC("fentry/tcp_tasklet_func")
int BPF_PROG(cpu_tcp_tasklet_func_fentry)
{
	return network_tasklet_begins();
}

SEC("fexit/tcp_tasklet_func")
int BPF_PROG(cpu_tcp_tasklet_func_fexit)
{
	return tasklet_ends();
}

SEC("kprobe/tcp_tasklet_func")
int BPF_KPROBE(cpu_tcp_tasklet_func_kprobe)
{
	return network_tasklet_begins();
}

SEC("kretprobe/tcp_tasklet_func")
int BPF_KRETPROBE(cpu_tcp_tasklet_func_kretprobe)
{
	return tasklet_ends();
}

SEC("tp_btf/workqueue_execute_start")
int BPF_PROG(cpu_workqueue_execute_start, struct work_struct *work)
{
	return work_begins(work->func);
}

SEC("tp_btf/workqueue_execute_end")
int BPF_PROG(cpu_workqueue_execute_end)
{
	return work_ends();
}

/* ---- threads ---- */

SEC("tp_btf/sched_switch")
int BPF_PROG(cpu_switch, bool preempted, struct task_struct *prev, struct task_struct *next)
{
	return thread_switches(prev, next);
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(cpu_exit, struct task_struct *task)
{
	return thread_exits(task);
}

/* ---- socket calls, by the system call ---- */

SEC("tp_btf/sys_enter")
int BPF_PROG(cpu_call_enter, struct pt_regs *regs, u64 number)
{
	return system_call_begins(regs, number);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(cpu_call_exit, struct pt_regs *regs, s64 result)
{
	return system_call_ends(regs, result);
}

/* ---- socket calls, by the functions of the sockets ---- */

/* fexit has what the function returned after its arguments. */
#define SOCKET_FUNCTION(function, part, arguments...)                                                                  \
	SEC("fentry/" #function)                                                                                       \
	int BPF_PROG(cpu_##function##_fentry)                                                                          \
	{                                                                                                              \
		return function_begins(part);                                                                          \
	}                                                                                                              \
	SEC("fexit/" #function)                                                                                        \
	int BPF_PROG(cpu_##function##_fexit, arguments, s32 result)                                                    \
	{                                                                                                              \
		return function_ends(result);                                                                          \
	}                                                                                                              \
	SEC("kprobe/" #function)                                                                                       \
	int BPF_KPROBE(cpu_##function##_kprobe)                                                                        \
	{                                                                                                              \
		return function_begins(part);                                                                          \
	}                                                                                                              \
	SEC("kretprobe/" #function)                                                                                    \
	int BPF_KRETPROBE(cpu_##function##_kretprobe, s32 result)                                                      \
	{                                                                                                              \
		return function_ends(result);                                                                          \
	}

#define SEND_ARGUMENTS struct socket *socket, struct msghdr *msg, u64 len_bytes
#define RECEIVE_ARGUMENTS struct socket *socket, struct msghdr *msg, u64 len_bytes, s32 flags

SOCKET_FUNCTION(inet_sendmsg, HOP_CPU_SEND, SEND_ARGUMENTS)
SOCKET_FUNCTION(inet6_sendmsg, HOP_CPU_SEND, SEND_ARGUMENTS)
SOCKET_FUNCTION(inet_recvmsg, HOP_CPU_RECEIVE, RECEIVE_ARGUMENTS)
SOCKET_FUNCTION(inet6_recvmsg, HOP_CPU_RECEIVE, RECEIVE_ARGUMENTS)
SOCKET_FUNCTION(tcp_splice_read, HOP_CPU_RECEIVE, struct socket *socket, s64 *offset, void *pipe, u64 len_bytes,
		u32 flags)
/* Until 6.5 (dc97391e6610). */
SOCKET_FUNCTION(inet_sendpage, HOP_CPU_SEND, struct socket *socket, void *page, s32 offset, u64 len_bytes, s32 flags)
SOCKET_FUNCTION(packet_sendmsg, HOP_CPU_SEND, SEND_ARGUMENTS)
SOCKET_FUNCTION(packet_recvmsg, HOP_CPU_RECEIVE, RECEIVE_ARGUMENTS)

/* ---- socket calls that neither send nor receive, by the functions of the sockets ---- */

#define CONTROL_FUNCTION(function)                                                                                     \
	SEC("fentry/" #function)                                                                                       \
	int BPF_PROG(cpu_##function##_fentry)                                                                          \
	{                                                                                                              \
		return function_begins(HOP_CPU_CONTROL);                                                               \
	}                                                                                                              \
	SEC("fexit/" #function)                                                                                        \
	int BPF_PROG(cpu_##function##_fexit)                                                                           \
	{                                                                                                              \
		return control_function_ends();                                                                        \
	}                                                                                                              \
	SEC("kprobe/" #function)                                                                                       \
	int BPF_KPROBE(cpu_##function##_kprobe)                                                                        \
	{                                                                                                              \
		return function_begins(HOP_CPU_CONTROL);                                                               \
	}                                                                                                              \
	SEC("kretprobe/" #function)                                                                                    \
	int BPF_KRETPROBE(cpu_##function##_kretprobe)                                                                  \
	{                                                                                                              \
		return control_function_ends();                                                                        \
	}

CONTROL_FUNCTION(inet_create)
CONTROL_FUNCTION(inet6_create)
CONTROL_FUNCTION(inet_bind)
CONTROL_FUNCTION(inet6_bind)
CONTROL_FUNCTION(inet_dgram_connect)
CONTROL_FUNCTION(inet_stream_connect)
CONTROL_FUNCTION(inet_listen)
CONTROL_FUNCTION(inet_accept)
CONTROL_FUNCTION(inet_getname)
CONTROL_FUNCTION(inet6_getname)
CONTROL_FUNCTION(inet_shutdown)
CONTROL_FUNCTION(inet_release)
CONTROL_FUNCTION(inet6_release)
CONTROL_FUNCTION(inet_ioctl)
CONTROL_FUNCTION(inet6_ioctl)
CONTROL_FUNCTION(sock_setsockopt)
CONTROL_FUNCTION(sock_common_setsockopt)
CONTROL_FUNCTION(sock_common_getsockopt)

SEC("fentry/napi_busy_loop")
int BPF_PROG(cpu_busy_fentry)
{
	return polling(true);
}

SEC("fexit/napi_busy_loop")
int BPF_PROG(cpu_busy_fexit)
{
	return polling(false);
}

SEC("kprobe/napi_busy_loop")
int BPF_KPROBE(cpu_busy_kprobe)
{
	return polling(true);
}

SEC("kretprobe/napi_busy_loop")
int BPF_KRETPROBE(cpu_busy_kretprobe)
{
	return polling(false);
}

/* ---- socket calls of io_uring ---- */

SEC("iter/task")
int cpu_uring_tasks(struct bpf_iter__task *ctx)
{
	return uring_used(ctx);
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(cpu_sent, struct sock *sk, s32 result)
{
	return socket_call_ends(sk, result, HOP_CPU_SEND);
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(cpu_received, struct sock *sk, s32 result)
{
	return socket_call_ends(sk, result, HOP_CPU_RECEIVE);
}

SEC("tp_btf/io_uring_submit_req")
int BPF_PROG(cpu_uring_submit)
{
	return uring_turns();
}

SEC("tp_btf/io_uring_complete")
int BPF_PROG(cpu_uring_complete)
{
	return uring_turns();
}

/* ---- stacks ---- */

SEC("perf_event")
int cpu_sample(void *ctx)
{
	return sample_stack(ctx);
}

SEC("perf_event")
int cpu_sample_alone(void *ctx)
{
	return sample_alone(ctx);
}
