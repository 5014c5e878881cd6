-- Evaluations that were interrupted since a call for them, and when another attempt may begin without one.
CREATE TABLE resumptions (
    number BIGINT PRIMARY KEY,
    done BIGINT NOT NULL,
    failures BIGINT NOT NULL,
    held BIGINT NOT NULL,
    not_before_ns BIGINT NOT NULL,
    warned_ns BIGINT NOT NULL
);

CREATE FUNCTION resumptions_go() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM resumptions WHERE number = OLD.number;
    RETURN NULL;
END
$$;
CREATE TRIGGER resumptions_go AFTER DELETE ON evaluations FOR EACH ROW EXECUTE FUNCTION resumptions_go();
