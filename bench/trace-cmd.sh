#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run trace-cmd with arguments where tracefs may not be mounted, and where the kernel has no function tracer for it to set: its
# files are covered by an empty one. To be run in a mount namespace of its own. Ctrl-C ends it and what it runs.
tracing=/sys/kernel/tracing
mountpoint -q $tracing || mount -t tracefs none $tracing || exit
before=$(cat $tracing/tracing_on)
cover=$(mktemp)
for file in /proc/sys/kernel/ftrace_enabled $tracing/set_ftrace_filter $tracing/set_ftrace_notrace $tracing/set_ftrace_pid; do
  [ ! -e $file ] || mount --bind "$cover" $file
done
trap 'pkill -INT -P $child; kill -INT $child' INT
trace-cmd "$@" &
child=$!
while kill -0 $child 2>/dev/null; do wait $child; done
rm "$cover"
echo "$before" >$tracing/tracing_on
