# SPDX-License-Identifier: Apache-2.0
"""``python -m hopscope`` is ``hopscope``."""

from hopscope.main import main

if __name__ == "__main__":
    main()
