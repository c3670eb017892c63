"""Found by Spark by this package's name: makes ``spark.read.format("replog")`` work without any registration.

Spark imports every top-level package called ``pyspark_*`` and gives up all such sources at the first that raises,
so this one never does: where the source cannot be loaded, one of the same name takes its place and says why when it
is used.
"""

from __future__ import annotations

try:
    from pyreplog.spark.source import ReplogDataSource as DefaultSource
except Exception as error:
    try:
        from pyspark_replog import broken

        broken.BrokenSource.reason = f"{type(error).__name__}: {error}"
        DefaultSource = broken.BrokenSource  # type: ignore[assignment, misc]
    except Exception:
        pass  # without Spark it is not needed
