-- Bounds of cost and tokens; the comments of crucible_worker/journal/schema.py say what the columns are.
CREATE TABLE evaluation_budgets (
    number BIGINT PRIMARY KEY,
    max_cost DOUBLE PRECISION,
    max_output_tokens BIGINT,
    max_run_cost DOUBLE PRECISION,
    max_run_output_tokens BIGINT,
    cost DOUBLE PRECISION NOT NULL,
    output_tokens BIGINT NOT NULL,
    spent TEXT NOT NULL
);

CREATE FUNCTION evaluation_budgets_go() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM evaluation_budgets WHERE number = OLD.number;
    RETURN NULL;
END
$$;
CREATE TRIGGER evaluation_budgets_go AFTER DELETE ON evaluations FOR EACH ROW EXECUTE FUNCTION evaluation_budgets_go();
