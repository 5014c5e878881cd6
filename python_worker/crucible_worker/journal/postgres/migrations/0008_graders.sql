-- The graders by which evaluations judge; the comments of crucible_worker/journal/schema.py say what the columns are.
CREATE TABLE evaluation_graders (
    number BIGINT PRIMARY KEY,
    graders TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    mixed BIGINT NOT NULL
);

CREATE FUNCTION evaluation_graders_mixed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE evaluation_graders SET mixed = 1 WHERE number = NEW.number AND attempt <> NEW.attempt;
    RETURN NULL;
END
$$;
CREATE TRIGGER evaluation_graders_mixed AFTER UPDATE OF attempt ON evaluations FOR EACH ROW
    WHEN (NEW.attempt <> OLD.attempt) EXECUTE FUNCTION evaluation_graders_mixed();

CREATE FUNCTION evaluation_graders_go() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM evaluation_graders WHERE number = OLD.number
        AND NOT EXISTS (SELECT 1 FROM evaluations WHERE number = OLD.number)
        AND NOT EXISTS (SELECT 1 FROM checkpoint_results WHERE number = OLD.number);
    RETURN NULL;
END
$$;
CREATE TRIGGER evaluation_graders_go AFTER DELETE ON evaluations FOR EACH ROW EXECUTE FUNCTION evaluation_graders_go();
CREATE TRIGGER evaluation_graders_go_last AFTER DELETE ON checkpoint_results FOR EACH ROW
    EXECUTE FUNCTION evaluation_graders_go();
