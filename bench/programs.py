"""Generates programs of any size, with views of all kinds, no two of them equal."""

STREAMS = """\
CREATE DOMAIN quantity AS int CHECK (VALUE BETWEEN 0 AND 1000000);
CREATE STREAM Quotes (t: time -> issue: string, price: int, volume: quantity);
CREATE STREAM Orders (o: time -> issue: string, customer: string, amount: quantity);
CREATE STREAM Payments (p: time -> orderid: time, paid: quantity);
"""

VIEWS = (
    "SELECT issue, price FROM Quotes WHERE price > {n} AND volume > 10",
    "SELECT issue, SUM(volume) AS total, COUNT(*) AS n FROM Quotes WHERE price < {n} GROUP BY issue",
    "SELECT o, customer, amount - total AS rest FROM Orders JOIN V{one_back} USING (issue) WHERE rest > {n}",
    "SELECT window_start, issue, MAX(price) AS high, MIN(price) AS low, LATEST(price) AS cur\n"
    "  FROM TUMBLE(Quotes, t, INTERVAL '{n}' MINUTE) GROUP BY window_start, issue",
    "SELECT issue, MAX(high) AS peak FROM V{one_back} GROUP BY issue HAVING MAX(high) > {n}",
    "SELECT o, customer FROM Orders WHERE NOT EXISTS\n"
    "  (SELECT * FROM Payments WHERE orderid = o AND p <= o + INTERVAL '{n}' SECOND)",
    "SELECT t, issue, price FROM Quotes BEST {n} BY price DESC PER issue",
    "SELECT t, issue, price FROM Quotes WHERE price > {n} UNION ALL SELECT o, issue, amount FROM Orders",
    "SELECT t, Quotes.issue, AVG(price) OVER (PARTITION BY Quotes.issue ORDER BY t\n"
    "  RANGE INTERVAL '{n}' MINUTE PRECEDING) AS mean FROM Quotes",
    "SELECT o, CASE WHEN amount > {n} THEN 'large' ELSE 'small' END AS size, paid\n"
    "  FROM Orders LEFT JOIN Payments ON orderid = o",
)


def generate_program(views: int) -> str:
    """A program with this number of views. Every fifth view is subscribed."""
    lines = [STREAMS]
    for i in range(views):
        template = VIEWS[i % len(VIEWS)]
        body = template.format(n=i // len(VIEWS) + 1, one_back=i - 1)
        lines.append(f"CREATE VIEW V{i} AS {body};\n")
    names = ", ".join(f"V{i}" for i in range(0, views, 5))
    return "".join([*lines, f"SUBSCRIBE {names};\n"])
