-- What the queries of programs/nexmark/nexmark.smile mean in PostgreSQL, where they are written differently. A tick is a
-- bigint; a second has 1024000000 ticks. The other queries are taken from the program, with TO_CHAR and HOUR of ticks.

-- Q4
SELECT category, AVG(final) FROM (
  SELECT MAX(B.price) AS final, A.category FROM Auction A, Bid B
  WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires GROUP BY A.id, A.category
) Q GROUP BY category;

-- Q5
WITH counts AS (
  SELECT auction, start, COUNT(*) AS num
  FROM Bid, generate_series(dateTime / 2048000000 - 4, dateTime / 2048000000) AS start
  GROUP BY auction, start
)
SELECT auction, num FROM counts c WHERE num >= (SELECT MAX(num) FROM counts d WHERE d.start = c.start);

-- Q7
SELECT auction, price, bidder, dateTime, extra FROM Bid B
WHERE price = (SELECT MAX(price) FROM Bid C WHERE C.dateTime / 10240000000 = B.dateTime / 10240000000);

-- Q8
SELECT DISTINCT P.id, P.name, P.dateTime / 10240000000 * 10240000000
FROM Person P JOIN Auction A ON P.id = A.seller AND P.dateTime / 10240000000 = A.dateTime / 10240000000;

-- Q11
SELECT bidder, COUNT(*), MIN(dateTime), MAX(dateTime) + 10240000000 FROM (
  SELECT bidder, dateTime, SUM(begins) OVER (PARTITION BY bidder ORDER BY dateTime) AS number FROM (
    SELECT bidder, dateTime,
      CASE WHEN dateTime - LAG(dateTime) OVER (PARTITION BY bidder ORDER BY dateTime) <= 10240000000 THEN 0 ELSE 1 END AS begins
    FROM Bid
  ) gaps
) numbered
GROUP BY bidder, number;

-- Q12
SELECT bidder, COUNT(*), dateTime / 10240000000 * 10240000000, (dateTime / 10240000000 + 1) * 10240000000
FROM Bid GROUP BY bidder, dateTime / 10240000000;

-- Q18
SELECT auction, bidder, price, channel, url, dateTime, extra
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) AS n FROM Bid) Q WHERE n <= 1;

-- Q19
SELECT auction, bidder, price, channel, url, dateTime, extra
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, dateTime) AS n FROM Bid) Q WHERE n <= 10;

-- Q21
SELECT auction, bidder, price, channel, CASE
    WHEN LOWER(channel) = 'apple' THEN '0'
    WHEN LOWER(channel) = 'google' THEN '1'
    WHEN LOWER(channel) = 'facebook' THEN '2'
    WHEN LOWER(channel) = 'baidu' THEN '3'
    ELSE (REGEXP_MATCH(url, '(&|^)channel_id=([^&]*)'))[2]
  END
FROM Bid
WHERE (REGEXP_MATCH(url, '(&|^)channel_id=([^&]*)'))[2] IS NOT NULL OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu');
