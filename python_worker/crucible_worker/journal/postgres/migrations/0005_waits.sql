-- Evaluations whose models did not answer at some time: what they wait for, and when another attempt may begin.
CREATE TABLE evaluation_waits (
    number BIGINT PRIMARY KEY,
    waiting_for TEXT NOT NULL,
    outages BIGINT NOT NULL,
    not_before_ns BIGINT NOT NULL
);

CREATE FUNCTION evaluation_waits_go() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM evaluation_waits WHERE number = OLD.number;
    RETURN NULL;
END
$$;
CREATE TRIGGER evaluation_waits_go AFTER DELETE ON evaluations FOR EACH ROW EXECUTE FUNCTION evaluation_waits_go();
