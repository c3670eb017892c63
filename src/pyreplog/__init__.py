"""The replicated log you import: an embedded, Kafka-format commit log for Python.

``open_log`` keeps one durable log in a folder; ``Cluster`` replicates topics over nodes in this process. See docs/tutorial.md.
"""

from __future__ import annotations

from pyreplog.runtime import Log, open_log

__version__ = "0.1.0"
__all__ = ["Log", "open_log"]
