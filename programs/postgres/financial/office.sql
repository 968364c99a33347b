-- An office: quotes of its market, portfolios, and the limits of its trading.
CREATE TABLE portfolios (portfolio text, symbol text, PRIMARY KEY (portfolio, symbol));
CREATE TABLE noted (portfolio text, symbol text, price numeric(10, 2));
CREATE TABLE limits (office text DEFAULT current_database(), symbol text PRIMARY KEY, price_max numeric(10, 2));
CREATE TABLE firm_limits (office text, symbol text, price_max numeric(10, 2), PRIMARY KEY (office, symbol));
INSERT INTO portfolios VALUES ('growth', 'IBM'), ('income', 'HP');
INSERT INTO limits (symbol, price_max) VALUES ('IBM', 120), ('HP', 40), ('BP', 10);

CREATE EVENT TYPE StockQuote AS (symbol text NOT NULL, price numeric(10, 2) NOT NULL, volume bigint NOT NULL);
CREATE EVENT TYPE Decision AS (office text NOT NULL, symbol text NOT NULL, price_max numeric(10, 2));
ADVERTISE StockQuote;
ADVERTISE Decision;

-- Each portfolio receives the quotes of what it holds.
CREATE FUNCTION note_quote(portfolio text, symbol text, price numeric) RETURNS void LANGUAGE sql AS $$
    INSERT INTO noted VALUES ($1, $2, $3)
$$;
CREATE LOCAL SUBSCRIPTION Growth ON StockQuote
    WHERE symbol IN (SELECT symbol FROM portfolios WHERE portfolio = 'growth')
    EXECUTE note_quote('growth', symbol, price);
CREATE LOCAL SUBSCRIPTION Income ON StockQuote
    WHERE symbol IN (SELECT symbol FROM portfolios WHERE portfolio = 'income')
    EXECUTE note_quote('income', symbol, price) WITH 1;

-- A changed limit is a decision, which all offices receive.
CREATE RULE Decided AS ON UPDATE TO limits WHERE NEW.price_max IS DISTINCT FROM OLD.price_max
    PUBLISH Decision(NEW.office, NEW.symbol, NEW.price_max);
CREATE FUNCTION record_decision(office text, symbol text, price_max numeric) RETURNS void LANGUAGE sql AS $$
    INSERT INTO firm_limits VALUES ($1, $2, $3)
    ON CONFLICT (office, symbol) DO UPDATE SET price_max = excluded.price_max
$$;
CREATE GLOBAL SUBSCRIPTION Coordinate ON Decision EXECUTE record_decision(office, symbol, price_max);

CREATE TABLE volumes FROM VIEW Volumes WITH KNOWLEDGE;
