-- Forgetting: which turns have lost their text, and what refers to a row that is to go.
ALTER TABLE turn ADD COLUMN forgotten INTEGER NOT NULL DEFAULT 0;
CREATE INDEX turn_retry ON turn (retry_of) WHERE retry_of IS NOT NULL;
CREATE INDEX delivery_effect ON delivery (effect) WHERE effect IS NOT NULL;
