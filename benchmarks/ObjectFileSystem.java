package varve.benchmarks;

import java.io.IOException;
import java.net.URI;
import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * Local files as `objects:///path`, each operation counted, and delayed, as the requests of an object store.
 *
 * Whatever is in doubt counts in favour of the caller: closing a new file is one PUT however large it is, opening one
 * is one GET, whether it exists one HEAD, a directory needs no request. A rename is counted, but neither delayed nor a
 * request: Spark has a writer for S3 that does without (AbortableStreamBasedCheckpointFileManager, which is not part
 * of PySpark). Only what a caller asks for counts, not what the local file system does for it.
 *
 * Compiled by Janino, so without lambdas and generics' diamonds.
 */
public class ObjectFileSystem extends RawLocalFileSystem {
    private static final URI ROOT = URI.create("objects:///");
    private static final ConcurrentHashMap<String, AtomicLong> COUNTS = new ConcurrentHashMap<String, AtomicLong>();
    private static final ThreadLocal<int[]> DEPTH = new ThreadLocal<int[]>();
    private long latencyMs;

    /** Lines "batch|background request file requests|bytes number", since the JVM began. */
    public static String counts() {
        StringBuilder text = new StringBuilder();
        Iterator entries = COUNTS.entrySet().iterator();
        while (entries.hasNext()) {
            Map.Entry entry = (Map.Entry) entries.next();
            text.append(entry.getKey()).append(' ').append(((AtomicLong) entry.getValue()).get()).append('\n');
        }
        return text.toString();
    }

    @Override
    public URI getUri() {
        return ROOT;
    }

    @Override
    public String getScheme() {
        return "objects";
    }

    @Override
    public void initialize(URI uri, Configuration conf) throws IOException {
        super.initialize(uri, conf);
        latencyMs = conf.getLong("fs.objects.latency.ms", 0L);
    }

    @Override
    public FSDataInputStream open(Path path, int bufferSize) throws IOException {
        boolean outer = enter();
        try {
            if (outer) {
                request("GET", path, pathToFile(path).length());
            }
            return super.open(path, bufferSize);
        } finally {
            leave();
        }
    }

    @Override
    public FSDataOutputStream create(
            Path path, boolean overwrite, int bufferSize, short replication, long blockSize, Progressable progress)
            throws IOException {
        boolean outer = enter();
        try {
            FSDataOutputStream made = super.create(path, overwrite, bufferSize, replication, blockSize, progress);
            return outer ? new Written(this, path, made) : made;
        } finally {
            leave();
        }
    }

    @Override
    public FSDataOutputStream create(
            Path path, FsPermission permission, boolean overwrite, int bufferSize, short replication, long blockSize,
            Progressable progress)
            throws IOException {
        boolean outer = enter();
        try {
            FSDataOutputStream made =
                super.create(path, permission, overwrite, bufferSize, replication, blockSize, progress);
            return outer ? new Written(this, path, made) : made;
        } finally {
            leave();
        }
    }

    @Override
    public boolean rename(Path from, Path to) throws IOException {
        boolean outer = enter();
        try {
            if (outer) {
                count("RENAME", to, pathToFile(from).length());
            }
            return super.rename(from, to);
        } finally {
            leave();
        }
    }

    @Override
    public boolean delete(Path path, boolean recursive) throws IOException {
        boolean outer = enter();
        try {
            if (outer) {
                request("DELETE", path, 0L);
            }
            return super.delete(path, recursive);
        } finally {
            leave();
        }
    }

    @Override
    public FileStatus[] listStatus(Path path) throws IOException {
        boolean outer = enter();
        try {
            if (outer) {
                request("LIST", path, 0L);
            }
            return super.listStatus(path);
        } finally {
            leave();
        }
    }

    @Override
    public FileStatus getFileStatus(Path path) throws IOException {
        boolean outer = enter();
        try {
            if (outer) {
                request("HEAD", path, 0L);
            }
            return super.getFileStatus(path);
        } finally {
            leave();
        }
    }

    @Override
    public boolean mkdirs(Path path) throws IOException {
        enter();
        try {
            return super.mkdirs(path);
        } finally {
            leave();
        }
    }

    @Override
    public boolean mkdirs(Path path, FsPermission permission) throws IOException {
        enter();
        try {
            return super.mkdirs(path, permission);
        } finally {
            leave();
        }
    }

    private static boolean enter() {
        int[] depth = (int[]) DEPTH.get();
        if (depth == null) {
            depth = new int[1];
            DEPTH.set(depth);
        }
        depth[0] = depth[0] + 1;
        return depth[0] == 1;
    }

    private static void leave() {
        int[] depth = (int[]) DEPTH.get();
        depth[0] = depth[0] - 1;
    }

    void request(String kind, Path path, long bytes) throws IOException {
        count(kind, path, bytes);
        if (latencyMs > 0L) {
            try {
                Thread.sleep(latencyMs);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                throw new java.io.InterruptedIOException("interrupted in a request");
            }
        }
    }

    private static void count(String kind, Path path, long bytes) {
        boolean background = Thread.currentThread().getName().contains("maintenance");
        String name = (background ? "background " : "batch ") + kind + " " + kindOf(path);
        add(name + " requests", 1L);
        add(name + " bytes", bytes);
    }

    private static void add(String name, long number) {
        AtomicLong known = (AtomicLong) COUNTS.get(name);
        if (known == null) {
            COUNTS.putIfAbsent(name, new AtomicLong());
            known = (AtomicLong) COUNTS.get(name);
        }
        known.addAndGet(number);
    }

    private static String kindOf(Path path) {
        String whole = path.toString();
        if (!whole.contains("/state/")) {
            return "logs";
        }
        if (whole.contains(".changelog")) {
            return "changelog";
        }
        return whole.contains(".zip") ? "snapshot" : "state";
    }

    /** A file that becomes an object when it is closed. */
    private static class Written extends FSDataOutputStream {
        private final ObjectFileSystem owner;
        private final Path path;
        private boolean closed;

        Written(ObjectFileSystem owner, Path path, FSDataOutputStream made) throws IOException {
            super(made, null);
            this.owner = owner;
            this.path = path;
        }

        @Override
        public void close() throws IOException {
            boolean first = !closed;
            closed = true;
            super.close();
            if (first) {
                owner.request("PUT", path, getPos());
            }
        }
    }
}
