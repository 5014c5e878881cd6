-- What callers have changed of an evaluation that has not ended: whether it is paused, and its concurrency.
CREATE TABLE evaluation_controls (
    number BIGINT PRIMARY KEY,
    change BIGINT NOT NULL,
    paused BIGINT NOT NULL,
    concurrency BIGINT
);

CREATE FUNCTION evaluation_controls_go() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM evaluation_controls WHERE number = OLD.number;
    RETURN NULL;
END
$$;
CREATE TRIGGER evaluation_controls_go AFTER DELETE ON evaluations FOR EACH ROW EXECUTE FUNCTION evaluation_controls_go();
