#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "framework/net/frame_memory.h"
#include "launcher/base/errors.h"
#include "launcher/transfer/chunk_table.h"

// The messages between two transfer agents, as values and as frames. README.md has the byte format.
namespace strait::transfer::message {

// ---- between any two agents

// Asks for the chunks of this content that the receiver has, now and whenever it gets more.
struct Subscribe {
  std::string id;
};
// The fetch has ended: nothing more need be said of this content.
struct Unsubscribe {
  std::string id;
};
// These chunks can be requested, in addition to those of earlier messages. None: the sender lives,
// but its limit delays what was requested.
struct Have {
  std::string id;
  std::vector<ChunkRun> runs;
};
struct GetChunk {
  std::string id;
  std::uint32_t chunk = 0;
  bool force = false;  // send it even if it was sent to another agent
};
struct Chunk {
  std::string id;
  std::uint32_t chunk = 0;
  std::vector<std::byte> content;  // chunk_frame writes it without a copy
};
// The chunk is not sent, because it is on its way to this process, which will have it.
struct Redirect {
  std::string id;
  std::uint32_t chunk = 0;
  std::string process;
};
// The chunk is not available here any more.
struct Missing {
  std::string id;
  std::uint32_t chunk = 0;
};

// ---- commands, from the launcher to a host agent. `command` is the number that the answer names.

// Asks for the chunk table of a file. Its chunks can be requested from then on.
struct Stat {
  std::uint64_t command = 0;
  std::string path;
};
// Fetch these chunks and make `path` a link to the content.
struct Fetch {
  std::uint64_t command = 0;
  ChunkTable table;
  std::vector<ChunkRun> runs;
  std::string path;
};
// A small file, with its text.
struct WriteFile {
  std::uint64_t command = 0;
  std::string path;
  std::string text;
};
// The answer will not be read; a fetch can end.
struct Cancel {
  std::uint64_t command = 0;
};
// Another host agent that accepts a link from this one.
struct PeerEndpoint {
  std::string process;
  std::string host;
  std::string endpoint;
};
// Remove the checkpoints of this run directory that are older than the newest of these steps and
// not among them.
struct PruneCheckpoints {
  std::uint64_t command = 0;
  std::string path;
  std::vector<std::uint64_t> steps;
};
// The run resumes from this step: set all later checkpoints of this run directory aside.
struct Rewind {
  std::uint64_t command = 0;
  std::string path;
  std::uint64_t step = 0;
};
// Keep this sealed file in memory open, and answer with its chunk table, as for Stat.
struct HoldMemory {
  std::uint64_t command = 0;
  std::string path;
};
// Fetch all of a content into memory, and hold it.
struct FetchToMemory {
  std::uint64_t command = 0;
  ChunkTable table;
};
// These contents are not needed any more: free those held in memory, and forget them.
struct Release {
  std::uint64_t command = 0;
  std::string ids;  // one behind the other
};

// ---- from a host agent to the launcher

// Other host agents can connect here.
struct Listening {
  std::string endpoint;
};
struct StatResult {
  std::uint64_t command = 0;
  ChunkTable table;
};
// Result of all other commands.
struct Done {
  std::uint64_t command = 0;
  std::uint64_t fetched = 0;  // bytes that the host did not have before
};
struct Failed {
  std::uint64_t command = 0;
  base::ExitCode code = base::ExitCode::internal;
  std::string text;
};

// The index is the kind on the wire: append only.
using Message =
    std::variant<Subscribe, Have, GetChunk, Chunk, Redirect, Missing, Stat, Fetch, WriteFile,
                 Cancel, StatResult, Done, Failed, PeerEndpoint, PruneCheckpoints, Listening,
                 Rewind, HoldMemory, FetchToMemory, Release, Unsubscribe>;

net::Frame format(const Message& message);
// A frame of Chunk; the caller writes the content to the place that this returns in `content`.
net::Frame chunk_frame(const std::string& id, std::uint32_t chunk, std::size_t bytes,
                       std::span<std::byte>& content);

// Checks limits before it allocates memory. base::MessageError names what is wrong. Pure.
Message parse_message(std::span<const std::byte> frame);

}  // namespace strait::transfer::message
