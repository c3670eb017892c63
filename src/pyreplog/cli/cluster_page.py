"""The state of a cluster as one HTML page, which needs no other file and runs no script."""

from __future__ import annotations

import html
from datetime import datetime

from pyreplog.cli.cluster_text import summary_lines
from pyreplog.cli.output import printable
from pyreplog.runtime import StoredNode, StoredPartition, StoredReplica, StoredState

__all__ = ["page_of"]

_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em; color: #1c2430; background: #fff }
h1 { font-size: 1.3em; margin: 0 0 .3em }
p { margin: .2em 0 }
table { border-collapse: collapse; margin-top: 1em }
th, td { border: 1px solid #d5dae1; padding: .35em .7em; text-align: left; vertical-align: top }
th { background: #f1f3f6 }
td.leader { background: #cfe8d5; font-weight: 600 }
td.insync { background: #e6f4e9 }
td.behind { background: #fdeec6 }
td.gone { background: #f7cfcf }
td.offline, td.under_min_isr { background: #f7cfcf; font-weight: 600 }
td.under_replicated { background: #fdeec6 }
td.none { background: #fafbfc }
small { color: #59636e }
@media (prefers-color-scheme: dark) {
  body { color: #e4e8ee; background: #14181d } th { background: #222931 } th, td { border-color: #3a434d }
  td.leader { background: #1f5c33 } td.insync { background: #20402a } td.behind { background: #5b4710 }
  td.gone, td.offline, td.under_min_isr { background: #6b2424 } td.under_replicated { background: #5b4710 }
  td.none { background: #181d23 } small { color: #9aa4af }
}
"""
_LEGEND = (
    ("leader", "leads"),
    ("insync", "in sync"),
    ("behind", "out of sync"),
    ("gone", "its node is down, or it cannot be read"),
)


def page_of(state: StoredState, now: datetime) -> str:
    """Return the page: nodes as columns, partitions as rows, colours for their states. ``now`` stands on it."""
    nodes = [node for node in state.nodes if node.state != "voter" or node.replicas]
    head = "".join(f"<th>{_node_head(node, state)}</th>" for node in nodes)
    rows = "\n".join(_row(one, nodes) for one in state.worst_first)
    first, *others = (_text(line) for line in summary_lines(state))
    only_vote = [str(node.node) for node in state.nodes if node not in nodes]
    if only_vote:
        others.append(f"only vote: node {', '.join(only_vote)}")
    legend = " &nbsp; ".join(
        f'<table style="display:inline-table;margin:0"><tr><td class="{kind}">{text}</td></tr></table>'
        for kind, text in _LEGEND
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{_text(state.path)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{first}</h1>
{"".join(f"<p>{line}</p>" for line in others)}
<p><small>by the folders, at {_text(now.isoformat(sep=" ", timespec="seconds"))}</small></p>
<table>
<thead><tr><th>partition</th><th>leader<br><small>epoch</small></th>{head}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
<p style="margin-top:1em">{legend}</p>
<p><small>Each copy: its high watermark / its log end offset.</small></p>
</body>
</html>
"""


def _node_head(node: StoredNode, state: StoredState) -> str:
    facts = [node.state, f"leads {node.leads}", f"{node.in_sync} of {node.replicas} in sync"]
    if node.rack is not None:
        facts.insert(0, f"rack {node.rack}")
    if node.votes:
        facts.append("votes")
    if node.metadata_end is not None and node.metadata_end < state.metadata_end:
        facts.append(f"metadata {state.metadata_end - node.metadata_end} behind")
    return f"node {node.node}<br><small>{'<br>'.join(map(_text, facts))}</small>"


def _row(one: StoredPartition, nodes: list[StoredNode]) -> str:
    copies = {copy.node: copy for copy in one.replicas}
    leader = "none" if one.leader < 0 else str(one.leader)
    kind = "" if one.condition == "whole" else f' class="{one.condition}"'
    words = "" if one.condition == "whole" else f"<br><small>{one.condition.replace('_', ' ')}</small>"
    cells = "".join(_cell(copies.get(node.node)) for node in nodes)
    return (
        f"<tr><td{kind}>{_text(one.name)}{words}</td><td>{leader}<br><small>{one.leader_epoch}</small></td>{cells}</tr>"
    )


def _cell(copy: StoredReplica | None) -> str:
    if copy is None:
        return '<td class="none"></td>'
    if copy.log_end is None:
        return f'<td class="gone">{_text(copy.trouble)}</td>'
    kind = "gone" if copy.trouble else "leader" if copy.is_leader else "insync" if copy.in_sync else "behind"
    notes = [copy.trouble] if copy.trouble else []
    if copy.is_leader:
        notes.append("leads")
    elif copy.lag:
        notes.append(f"{copy.lag:,} behind")
    note = f"<br><small>{_text(', '.join(notes))}</small>" if notes else ""
    return f'<td class="{kind}">{copy.high_watermark} / {copy.log_end}{note}</td>'


def _text(text: str) -> str:
    return html.escape(printable(text))
