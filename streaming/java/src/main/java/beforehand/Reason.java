package beforehand;

import java.util.Locale;

/** Why a record is a dead letter. The lower-case name is what the topic says, and what operators search for. */
enum Reason {
  NULL_VALUE,
  TOO_LARGE,
  NOT_UTF8,
  NOT_JSON,
  NOT_AN_OBJECT,
  EVENT_ID,
  USER_ID,
  ITEM_ID,
  KIND,
  AT,
  AT_IN_SECONDS,
  AT_IN_MICROSECONDS,
  FUTURE,
  CONTEXT,
  V;

  final String label = name().toLowerCase(Locale.ROOT);
}
