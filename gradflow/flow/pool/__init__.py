"""Many flows in one compiled kernel, each at its own pace: a lane whose member has ended loads the next one."""

from gradflow.flow.pool.blocks import Gathered as Gathered
from gradflow.flow.pool.blocks import run_blocks as run_blocks
from gradflow.flow.pool.kernel import Block as Block
from gradflow.flow.pool.kernel import Shared as Shared
from gradflow.flow.pool.kernel import pool_kernel as pool_kernel
from gradflow.flow.pool.rows import Held as Held
