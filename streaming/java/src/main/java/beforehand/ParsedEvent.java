package beforehand;

/** An event, or the reason why the record is none; with a reason the other fields mean nothing. */
final class ParsedEvent {
  String eventId;
  String userId;
  String itemId;
  String kind;
  Long at;
  Reason reason;

  static ParsedEvent bad(Reason reason) {
    ParsedEvent event = new ParsedEvent();
    event.reason = reason;
    return event;
  }

  /** Keeps the first fault of a record. */
  void fault(Reason found) {
    if (reason == null) {
      reason = found;
    }
  }

  /** Names the first required field that the record lacks, when nothing else is wrong. */
  ParsedEvent complete() {
    if (eventId == null) {
      fault(Reason.EVENT_ID);
    } else if (userId == null) {
      fault(Reason.USER_ID);
    } else if (itemId == null) {
      fault(Reason.ITEM_ID);
    } else if (kind == null) {
      fault(Reason.KIND);
    } else if (at == null) {
      fault(Reason.AT);
    }
    return this;
  }

  /** The same for a request to forget a user, which names the user and the time. */
  void completeForget() {
    kind = EventParser.FORGET;
    if (userId == null) {
      fault(Reason.USER_ID);
    } else if (at == null) {
      fault(Reason.AT);
    }
  }
}
