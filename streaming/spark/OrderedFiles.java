package tidemark;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Paths;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FilterFileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Another file system's folders, listed whole and in order: `ordered+file:/landing` has the visible files of
 * `file:/landing` and of its visible sub-folders, by modification time and then path, under their paths there.
 *
 * `ordered-NAME+s3a://bucket/landing` has those that the entry NAME of LISTERS gives instead, a Supplier of a text: on
 * each line milliseconds since the epoch, bytes, and the path in the bucket, URL-encoded.
 *
 * Spark's compiler, which makes this class, takes no type parameters into account.
 */
public class OrderedFiles extends FilterFileSystem {
    public static final Map LISTERS = new ConcurrentHashMap();

    private static final String PREFIX = "ordered";
    private static final String[] NO_MORE = new String[0];

    private URI uri;
    private String lister;

    public void initialize(URI name, Configuration conf) throws IOException {
        setConf(conf);
        String authority = name.getRawAuthority();
        this.uri = URI.create(name.getScheme() + "://" + (authority == null ? "" : authority) + "/");
        int sign = name.getScheme().indexOf('+');
        this.lister = sign == PREFIX.length() ? null : name.getScheme().substring(PREFIX.length() + 1, sign);
        this.fs = FileSystem.get(URI.create(this.uri.toString().substring(sign + 1)), conf);
        this.statistics = getStatistics(name.getScheme(), OrderedFiles.class);
    }

    public String getScheme() {
        return this.uri.getScheme();
    }

    public URI getUri() {
        return this.uri;
    }

    protected void checkPath(Path path) {
    }

    public Path makeQualified(Path path) {
        return path.makeQualified(this.uri, getWorkingDirectory());
    }

    public FileStatus getFileStatus(Path path) throws IOException {
        return this.fs.getFileStatus(inner(path));
    }

    public boolean exists(Path path) throws IOException {
        return this.fs.exists(inner(path));
    }

    public FileStatus[] listStatus(Path folder) throws IOException {
        List found = new ArrayList();
        if (this.lister != null) {
            addGiven((String) ((Supplier) LISTERS.get(this.lister)).get(), found);
        } else if (getScheme().equals(PREFIX + "+file")) {
            Set seen = new HashSet();
            TreeSet links = new TreeSet();
            addLocal(Paths.get(folder.toUri().getPath(), NO_MORE), seen, links, found);
            while (!links.isEmpty()) {
                addLocal((java.nio.file.Path) links.pollFirst(), seen, links, found);
            }
        } else {
            addBelow(inner(folder), found);
        }
        Entry[] entries = new Entry[found.size()];
        for (int place = 0; place < entries.length; place++) {
            entries[place] = new Entry((FileStatus) found.get(place));
        }
        Arrays.sort(entries);
        FileStatus[] ordered = new FileStatus[entries.length];
        for (int place = 0; place < entries.length; place++) {
            ordered[place] = entries[place].status;
        }
        return ordered;
    }

    private Path inner(Path path) {
        return this.fs.makeQualified(new Path(path.toUri().getPath()));
    }

    private void addGiven(String files, List found) {
        String[] lines = files.split("\n");
        for (int place = 0; place < lines.length; place++) {
            if (lines[place].isEmpty()) {
                continue;
            }
            String[] parts = lines[place].split(" ");
            Path path = this.fs.makeQualified(new Path(null, null, URI.create(parts[2]).getPath()));
            long modified = Long.parseLong(parts[0]);
            found.add(new FileStatus(Long.parseLong(parts[1]), false, 1, getDefaultBlockSize(), modified, path));
        }
    }

    private void addBelow(Path folder, List found) throws IOException {
        FileStatus[] entries = this.fs.listStatus(folder);
        for (int place = 0; place < entries.length; place++) {
            Path path = entries[place].getPath();
            if (!isVisible(path.getName())) {
                continue;
            }
            if (entries[place].isDirectory()) {
                try {
                    addBelow(path, found);
                } catch (FileNotFoundException gone) {
                    // A folder of an object store goes with its last file.
                    continue;
                }
            } else {
                found.add(entries[place]);
            }
        }
    }

    /**
     * Each folder is looked into once, and those behind `links` after all others: a file is known by its path, which
     * must not depend on the order in which a disk tells its entries. What Java cannot open by its name is left out.
     */
    private void addLocal(java.nio.file.Path folder, Set seen, TreeSet links, List found) throws IOException {
        DirectoryStream entries;
        try {
            if (!seen.add(Files.readAttributes(folder, BasicFileAttributes.class).fileKey())) {
                return;
            }
            entries = Files.newDirectoryStream(folder);
        } catch (NoSuchFileException missing) {
            if (seen.isEmpty()) {
                throw new FileNotFoundException(folder.toString());
            }
            return;
        }
        try {
            Iterator each = entries.iterator();
            while (each.hasNext()) {
                String name = ((java.nio.file.Path) each.next()).getFileName().toString();
                if (!isVisible(name)) {
                    continue;
                }
                java.nio.file.Path entry = Paths.get(folder.toString(), new String[] {name});
                BasicFileAttributes attributes;
                try {
                    attributes = Files.readAttributes(entry, BasicFileAttributes.class);
                } catch (FileSystemException error) {
                    // It was moved away meanwhile, or is a link that leads nowhere.
                    if (error instanceof NoSuchFileException || Files.isSymbolicLink(entry)) {
                        continue;
                    }
                    throw error;
                }
                if (attributes.isDirectory() && Files.isSymbolicLink(entry)) {
                    links.add(entry);
                } else if (attributes.isDirectory()) {
                    addLocal(entry, seen, links, found);
                } else if (attributes.isRegularFile()) {
                    // A file is its URI to Spark's source, which has always been written with three slashes.
                    Path path = this.fs.makeQualified(new Path(null, null, entry.toString()));
                    long modified = attributes.lastModifiedTime().toMillis();
                    found.add(new FileStatus(attributes.size(), false, 1, getDefaultBlockSize(), modified, path));
                }
            }
        } finally {
            entries.close();
        }
    }

    private static boolean isVisible(String name) {
        return !name.startsWith(".") && !name.endsWith("._COPYING_") && (!name.startsWith("_") || name.indexOf('=') >= 0);
    }

    private static class Entry implements Comparable {
        final FileStatus status;
        private final byte[] name;

        Entry(FileStatus status) {
            this.status = status;
            this.name = status.getPath().toUri().toString().getBytes(StandardCharsets.UTF_8);
        }

        public int compareTo(Object other) {
            Entry entry = (Entry) other;
            int byTime = Long.compare(this.status.getModificationTime(), entry.status.getModificationTime());
            return byTime != 0 ? byTime : Arrays.compareUnsigned(this.name, entry.name);
        }
    }
}
