package beforehand.edge;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;

/** What a bundle's manifest says. */
final class Content {
    /** One file of the bundle. */
    static final class Entry {
        final String sha256;
        final long numBytes;

        Entry(String sha256, long numBytes) {
            this.sha256 = sha256;
            this.numBytes = numBytes;
        }
    }

    final String id;
    final String release;
    final String graph;
    final long madeAtMs;
    final int width;
    final int promptRows;
    final int localEvents;
    final int levels;
    final int numBuckets;
    final int tailShards;
    final double usableForS;
    final double promptUsableForS;
    final String minimumRuntime;
    final List<String> buckets = new ArrayList<>();
    final Map<String, Entry> files = new HashMap<>();

    /** Refuses (corrupt) what lacks a part. */
    Content(JSONObject manifest) throws RefusedException {
        try {
            JSONObject content = manifest.getJSONObject("content");
            JSONObject sizes = content.getJSONObject("sizes");
            id = manifest.getString("id");
            release = content.getString("release");
            graph = content.getString("graph");
            madeAtMs = content.getLong("made_at");
            width = sizes.getInt("width");
            promptRows = sizes.getInt("prompt_rows");
            localEvents = sizes.getInt("local_events");
            levels = sizes.getInt("levels");
            numBuckets = sizes.getInt("num_buckets");
            tailShards = content.getInt("tail_shards");
            usableForS = content.getDouble("usable_for_s");
            promptUsableForS = content.getDouble("prompt_usable_for_s");
            minimumRuntime = content.getJSONObject("minimum_runtimes").optString("onnxruntime", "0");
            JSONArray names = content.getJSONArray("buckets");
            for (int i = 0; i < names.length(); i++) {
                buckets.add(names.getString(i));
            }
            JSONObject entries = content.getJSONObject("files");
            for (String name : entries.keySet()) {
                JSONObject entry = entries.getJSONObject(name);
                files.put(name, new Entry(entry.getString("sha256"), entry.getLong("num_bytes")));
            }
        } catch (JSONException e) {
            throw RefusedException.corrupt(e.getMessage());
        }
    }

    Entry file(String name) throws RefusedException {
        Entry entry = files.get(name);
        if (entry == null) {
            throw RefusedException.corrupt("the manifest lacks " + name);
        }
        return entry;
    }

    boolean tooOld(long nowMs) {
        return Math.max(0, nowMs - madeAtMs) > usableForS * 1000;
    }

    /** The number of a bucket given by number or name; 0, everybody, when the release lacks it. */
    int bucket(Object given) {
        int number = given instanceof Integer ? (Integer) given : buckets.indexOf(given);
        return number >= 0 && number < numBuckets ? number : 0;
    }
}
