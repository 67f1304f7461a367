package beforehand.edge;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Set;
import java.util.UUID;

/**
 * A folder where bundles are kept between starts; without one, memory. Nothing of a user is ever put here. Failures are
 * swallowed: without it every start is a first start.
 */
final class Cache {
    static final String CURRENT = "current";
    static final String MANIFEST = "manifest";
    private static final String SEED = "seed";
    private static final String FILE = "file-";

    private final Path folder;
    private final long maxBytes;
    private volatile boolean full;
    private final java.util.concurrent.ConcurrentHashMap<String, byte[]> memory =
            new java.util.concurrent.ConcurrentHashMap<>();

    Cache(File folder, long maxBytes) {
        this.folder = folder == null ? null : folder.toPath();
        this.maxBytes = maxBytes;
    }

    /** Whether the last write was refused. */
    boolean full() {
        return full;
    }

    byte[] get(String name) {
        if (folder == null) {
            return memory.get(name);
        }
        try {
            return Files.readAllBytes(folder.resolve(name));
        } catch (IOException e) {
            return null;
        }
    }

    byte[] file(String sha256) {
        return get(FILE + sha256);
    }

    void putFile(String sha256, byte[] bytes) {
        put(FILE + sha256, bytes);
    }

    /** Whole or not at all. */
    void put(String name, byte[] bytes) {
        if (bytes.length > maxBytes) {
            full = true;
        } else if (folder == null) {
            memory.put(name, bytes);
        } else {
            write(name, bytes);
        }
    }

    /** This device's random number: drawn once, never sent. */
    String seed() {
        byte[] known = get(SEED);
        if (known != null) {
            return new String(known, StandardCharsets.UTF_8);
        }
        String drawn = UUID.randomUUID().toString();
        put(SEED, drawn.getBytes(StandardCharsets.UTF_8));
        return drawn;
    }

    /** Drop the files that are not among {@code wanted}. */
    void trim(Set<String> wanted) {
        memory.keySet().removeIf(name -> stale(name, wanted));
        String[] names = folder == null ? null : folder.toFile().list();
        for (String name : names == null ? new String[0] : names) {
            if (stale(name, wanted)) {
                folder.resolve(name).toFile().delete();
            }
        }
    }

    private static boolean stale(String name, Set<String> wanted) {
        return name.startsWith(FILE) && !wanted.contains(name.substring(FILE.length()));
    }

    private void write(String name, byte[] bytes) {
        Path part = folder.resolve(name + ".part");
        try {
            Files.createDirectories(folder);
            Files.write(part, bytes);
            Files.move(part, folder.resolve(name), StandardCopyOption.REPLACE_EXISTING);
        } catch (IOException e) {
            full = true;
            part.toFile().delete();
        }
    }
}
