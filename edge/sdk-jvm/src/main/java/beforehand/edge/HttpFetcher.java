package beforehand.edge;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.SocketTimeoutException;
import java.net.URI;

/** {@link HttpURLConnection}: on every JVM and on Android. */
final class HttpFetcher implements Fetcher {
    private static final int PIECE_BYTES = 16 * 1024;

    @Override
    public byte[] fetch(String url, int maxBytes, int timeoutMs) throws IOException {
        long end = System.nanoTime() + timeoutMs * 1_000_000L;
        HttpURLConnection connection = (HttpURLConnection) URI.create(url).toURL().openConnection();
        try {
            connection.setConnectTimeout(timeoutMs);
            connection.setReadTimeout(timeoutMs);
            if (connection.getResponseCode() != HttpURLConnection.HTTP_OK) {
                throw new StatusException(connection.getResponseCode());
            }
            return read(connection, maxBytes, end);
        } finally {
            connection.disconnect();
        }
    }

    /** A read's own time limit lets a slow drip through: the whole is bounded as well. */
    private static byte[] read(HttpURLConnection connection, int maxBytes, long end) throws IOException {
        ByteArrayOutputStream whole = new ByteArrayOutputStream();
        byte[] piece = new byte[PIECE_BYTES];
        try (InputStream body = connection.getInputStream()) {
            for (int n = body.read(piece); n >= 0 && whole.size() <= maxBytes; n = body.read(piece)) {
                whole.write(piece, 0, n);
                long leftMs = (end - System.nanoTime()) / 1_000_000L;
                if (leftMs <= 0) {
                    throw new SocketTimeoutException("the file did not come whole in time");
                }
                connection.setReadTimeout((int) leftMs);
            }
        }
        return whole.toByteArray();
    }
}
