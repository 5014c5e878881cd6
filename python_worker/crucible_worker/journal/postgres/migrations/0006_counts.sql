-- Of how many results the metrics in checkpoint_results are made; no row if an earlier release has written that.
CREATE TABLE checkpoint_counts (
    number BIGINT PRIMARY KEY,
    record BYTEA NOT NULL
);

CREATE FUNCTION checkpoint_counts_go() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM checkpoint_counts WHERE number = OLD.number;
    RETURN NULL;
END
$$;
CREATE TRIGGER checkpoint_counts_go AFTER DELETE ON checkpoint_results FOR EACH ROW
    EXECUTE FUNCTION checkpoint_counts_go();
