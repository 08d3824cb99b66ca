"""Diagrams of the service: what it is made of, and the life of a decision."""

from __future__ import annotations

from pictures.svg import Picture


def draw_architecture() -> str:
    """Draw the way of a request through a node, the store, and the other nodes."""
    picture = Picture(
        520, 520, "The architecture of the decision service",
        "A client sends HTTP requests to a node. In the node the request passes the HTTP layer, the engine, and the "
        "agent of its stream, which decides in memory. A committing thread writes the events of all waiting requests "
        "to the store in one transaction; only then is the request answered. A thread stores snapshots. With "
        "PostgreSQL, other nodes share the store and own other streams; nodes forward requests to each other.",
    )  # fmt: skip
    picture.box((30, 16), (330, 56), "clients", ["windvane.Client, curl, the live page"], "blue")
    picture.arrow([(120, 72), (120, 124)], "blue", width=2)
    picture.text((112, 100), "request", "blue", "end", 13)
    picture.arrow([(270, 124), (270, 72)], "green", width=2)
    picture.text((278, 100), "answer, after the commit", "green", size=13)

    picture.add("rect", x=14, y=106, width=362, height=296, rx=10, fill="none", stroke="muted", stroke_dasharray="2 4")
    picture.text((366, 394), "a node", "muted", "end", 13)
    picture.box((30, 124), (330, 54), "HTTP", ["token, limits, problem documents"])
    picture.arrow([(120, 178), (120, 200)])
    picture.box((30, 200), (330, 54), "engine", ["one turn per stream; streams in memory"])
    picture.arrow([(90, 254), (90, 290)])
    picture.arrow([(130, 290), (130, 254)])
    picture.box((30, 290), (140, 72), "agent", ["decides, learns:", "one per stream"], "violet")
    picture.arrow([(270, 254), (270, 290)])
    picture.text((262, 277), "event", "muted", "end", 13)
    picture.box((190, 290), (170, 72), "committing thread", ["all waiting events,", "one flush"], "orange")
    picture.arrow([(346, 290), (346, 254)], "green")

    picture.arrow([(270, 362), (270, 436)], "orange", width=2)
    picture.text((262, 424), "one transaction", "orange", "end", 13)
    picture.arrow([(60, 440), (60, 362)], "violet", dashed=True)
    picture.lines(
        (68, 380), ["at a start: the last", "snapshot and the", "events after it"], 16, colour="violet", size=12
    )
    picture.add(
        "path", d="M30 446v54c0 14 330 14 330 0v-54c0 14 -330 14 -330 0c0 -14 330 -14 330 0", fill="shade",
        stroke="orange", stroke_width=1.5,
    )  # fmt: skip
    picture.text((195, 477), "store: SQLite or PostgreSQL", anchor="middle", bold=True)
    picture.text((195, 496), "events (the log), snapshots, tokens", "muted", "middle", 13)

    for y, name in ((200, "node b"), (290, "node c")):
        picture.box((408, y), (104, 54), name, ["own streams"])
    picture.arrow([(376, 227), (408, 227)])
    picture.arrow([(408, 239), (376, 239)])
    picture.lines((455, 160), ["forwards to the", "owner of a stream"], anchor="middle", colour="muted", size=12)
    picture.line([(459, 254), (459, 290)], "grid", 1.5)
    picture.arrow([(459, 344), (459, 472), (362, 472)], "orange")
    picture.lines((452, 400), ["PostgreSQL", "only"], anchor="end", colour="muted", size=12)
    return picture.to_svg()


def draw_decision_life() -> str:
    """Draw the states of a decision, from its choice until it is learned."""
    picture = Picture(
        520, 480, "The life of a decision",
        "A decision is pending until its reward arrives or its timeout passes. A reward in time is recorded. With a "
        "default reward it is held until the timeout, and then learned; without one it is learned at once. When the "
        "timeout passes without a reward, the decision is expired: the default reward is learned, or nothing. A reward "
        "after that is kept as late and not learned.",
    )  # fmt: skip
    picture.box((150, 14), (190, 54), "decided", ["an arm, an id, a propensity"], "blue")
    picture.arrow([(245, 68), (245, 104)])
    picture.box((150, 104), (190, 54), "pending", ["waits for its reward"], "blue")
    picture.arrow([(185, 158), (110, 214)], "green", width=2)
    picture.text((122, 182), "reward in time", "green", "end", 13)
    picture.arrow([(305, 158), (395, 214)], "orange", width=2)
    picture.text((362, 182), "timeout passes", "orange", size=13)

    picture.box((14, 214), (204, 54), "rewarded", ["sent again: “unchanged”"], "green")
    picture.box((300, 214), (206, 54), "expired", ["no reward within the timeout"], "orange")

    picture.arrow([(58, 268), (58, 404)], "green")
    picture.lines((64, 318), ["without", "default", "reward"], colour="muted", size=12)
    picture.arrow([(178, 268), (178, 300)], "green")
    picture.box((124, 300), (118, 54), "held", ["till the timeout"], "green")
    picture.arrow([(178, 354), (178, 404)], "green")

    picture.arrow([(330, 268), (330, 384), (250, 384), (250, 404)], "orange")
    picture.lines((322, 330), ["default", "reward"], anchor="end", colour="muted", size=12)
    picture.arrow([(390, 268), (390, 404)], "orange")
    picture.lines((382, 318), ["no", "default"], anchor="end", colour="muted", size=12)
    picture.arrow([(468, 268), (468, 300)], "pink", dashed=True)
    picture.lines((460, 288), ["reward"], anchor="end", colour="pink", size=12)
    picture.box((410, 300), (96, 72), "late", ["answered", "“expired”"], "pink")
    picture.arrow([(468, 372), (468, 404)], "pink", dashed=True)

    picture.box((14, 404), (266, 62), "learned", ["with the age of the decision"], "violet")
    picture.box((310, 404), (196, 62), "not learned", ["kept in the log"])
    return picture.to_svg()
