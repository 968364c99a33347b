PUBLISH StockQuote('IBM', 117.25, 300);
PUBLISH StockQuote('HP', 38.10, 100);

-- The portfolio growth buys HP: from now on it receives its quotes. Both commit together.
BEGIN;
INSERT INTO portfolios VALUES ('growth', 'HP');
PUBLISH StockQuote('HP', 38.20, 200);
COMMIT;

-- Nobody receives what is rolled back.
BEGIN;
PUBLISH StockQuote('IBM', 1.00, 1000000);
ROLLBACK;

UPDATE limits SET price_max = 125 WHERE symbol = 'IBM';
