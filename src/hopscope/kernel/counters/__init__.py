# SPDX-License-Identifier: Apache-2.0
"""What the kernel's interfaces say, each read and understood: functions that `hopscope.kernel.counters.reader` calls.

A function is called in a thread that is in the namespace, takes nothing and gives ``(subject, name, value)``, where the
value is a number or a word. It raises OSError or FormatError where its interface cannot be read as a whole.
"""
