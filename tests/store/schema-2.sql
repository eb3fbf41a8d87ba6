-- A store of schema 2, dumped by SQLite. Never change it.
PRAGMA auto_vacuum = 2;
PRAGMA application_id = 1952936820;
PRAGMA user_version = 2;
BEGIN TRANSACTION;
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO "meta" VALUES('secret',X'2A2A2A2A2A2A2A2A2A2A2A2A2A2A2A2A2A2A2A2A2A2A2A2A2A2A2A2A2A2A2A2A');
CREATE TABLE result (n INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;
CREATE TABLE sealed (n INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;
CREATE TABLE session (
    id             BLOB PRIMARY KEY,
    client         TEXT NOT NULL,
    declares_tasks INTEGER NOT NULL,
    capabilities   TEXT NOT NULL,
    version        TEXT NOT NULL,
    own_tasks      TEXT NOT NULL,
    minted         INTEGER NOT NULL,
    ended          INTEGER NOT NULL,
    expires        INTEGER NOT NULL
, credential BLOB, stateless INTEGER NOT NULL DEFAULT 0) STRICT, WITHOUT ROWID;
INSERT INTO "session" VALUES(X'09090909090909090909090909090909','client/1',1,'{"elicitation":{}}','2025-11-25','core',1,0,1800000000000,X'07070707070707070707070707070707',1);
CREATE TABLE task (
    n             INTEGER PRIMARY KEY,
    id            BLOB NOT NULL UNIQUE,
    version       INTEGER NOT NULL,
    upstream      TEXT NOT NULL,
    tool          TEXT NOT NULL,
    made          TEXT NOT NULL,
    owner         TEXT NOT NULL,
    credential    BLOB,
    session       BLOB,
    open_by_id    INTEGER NOT NULL,
    listed        BLOB,              -- the session whose list it stands in
    created       INTEGER NOT NULL,
    updated       INTEGER NOT NULL,
    retention     INTEGER NOT NULL,
    poll_interval INTEGER NOT NULL,
    threshold     INTEGER NOT NULL,
    status        TEXT NOT NULL,
    detail        TEXT,              -- the data of the status, as JSON
    ended         INTEGER,
    expires       INTEGER,
    forgotten     INTEGER,
    execution     TEXT NOT NULL,
    cursor        TEXT,              -- of a stream, or the id of a task of the upstream's
    wait          INTEGER,
    holder        BLOB,              -- who runs it
    fetched       INTEGER NOT NULL,  -- 0, or the place in the order in which outcomes were read
    kept          INTEGER            -- bytes of its result, while that is kept
) STRICT;
INSERT INTO "task" VALUES(1,X'01010101010101010101010101010101',3,'/mcp','slow','ext','auto',X'07070707070707070707070707070707',X'09090909090909090909090909090909',0,NULL,1700000000001,1700000001000,86400000,2000,4500,'working',NULL,NULL,NULL,NULL,'unstarted',NULL,NULL,NULL,0,NULL);
CREATE INDEX task_listed ON task (listed, upstream, created, id) WHERE listed IS NOT NULL;
CREATE INDEX task_running ON task (created, id, holder) WHERE ended IS NULL;
CREATE INDEX task_kept ON task (fetched, kept) WHERE kept IS NOT NULL;
CREATE INDEX task_expires ON task (expires) WHERE kept IS NOT NULL;
CREATE INDEX task_forgotten ON task (forgotten, expires) WHERE forgotten IS NOT NULL;
CREATE INDEX session_expires ON session (expires);
COMMIT;
