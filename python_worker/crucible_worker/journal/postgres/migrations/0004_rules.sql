-- The rules by which evaluations measure; the comments of crucible_worker/journal/schema.py say what the columns are.
CREATE TABLE evaluation_rules (
    number BIGINT PRIMARY KEY,
    rules BIGINT NOT NULL,
    attempt BIGINT NOT NULL
);

CREATE FUNCTION evaluation_rules_mixed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE evaluation_rules SET rules = 0 WHERE number = NEW.number AND attempt <> NEW.attempt;
    RETURN NULL;
END
$$;
CREATE TRIGGER evaluation_rules_mixed AFTER UPDATE OF attempt ON evaluations FOR EACH ROW
    WHEN (NEW.attempt <> OLD.attempt) EXECUTE FUNCTION evaluation_rules_mixed();

CREATE FUNCTION evaluation_rules_go() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM evaluation_rules WHERE number = OLD.number
        AND NOT EXISTS (SELECT 1 FROM evaluations WHERE number = OLD.number)
        AND NOT EXISTS (SELECT 1 FROM checkpoint_results WHERE number = OLD.number);
    RETURN NULL;
END
$$;
CREATE TRIGGER evaluation_rules_go AFTER DELETE ON evaluations FOR EACH ROW EXECUTE FUNCTION evaluation_rules_go();
CREATE TRIGGER evaluation_rules_go_last AFTER DELETE ON checkpoint_results FOR EACH ROW
    EXECUTE FUNCTION evaluation_rules_go();
