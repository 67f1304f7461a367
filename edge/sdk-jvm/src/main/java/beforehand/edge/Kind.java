package beforehand.edge;

/** What a user did to an item; the ordinal + 1 is its number in the model. */
public enum Kind {
    IMPRESSION,
    CLICK,
    CART,
    PURCHASE
}
