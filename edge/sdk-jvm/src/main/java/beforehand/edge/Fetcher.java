package beforehand.edge;

import java.io.IOException;

/** Gets a file over HTTP. {@link HttpFetcher} by default; an app may hand in its own stack. */
public interface Fetcher {
    /**
     * @param maxBytes more than this need not be read
     * @param timeoutMs of the whole
     * @return the body of a 200, cut off after {@code maxBytes + 1} bytes
     * @throws StatusException when the server answers with another status
     * @throws java.net.SocketTimeoutException when the time is over
     * @throws IOException when it can't be reached
     */
    byte[] fetch(String url, int maxBytes, int timeoutMs) throws IOException;

    /** The server answered, but not with the file. */
    final class StatusException extends IOException {
        private static final long serialVersionUID = 1L;

        public StatusException(int status) {
            super("status " + status);
        }
    }
}
