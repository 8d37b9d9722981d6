"""`python -m tools.airgap`: see `pack`."""

import sys

from tools.airgap.pack import main

sys.exit(main())
