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

struct Get {
  std::string id;
  std::uint32_t chunk = 0;
};
struct Chunk {
  std::string id;
  std::uint32_t chunk = 0;
  std::vector<std::byte> content;  // chunk_frame writes it without a copy
};
// The chunk is not here.
struct Missing {
  std::string id;
  std::uint32_t chunk = 0;
};
// A request is delayed by the sender's upload limit, or because the sender is still fetching the
// chunk and makes progress.
struct Wait {};

// ---- commands, from the launcher to a host agent. `command` is the number that the answer names.

// Asks for the chunk table of a file, and offers the file from then on.
struct Stat {
  std::uint64_t command = 0;
  std::string path;
};
// Fetch these chunks and make `path` a link to the content. Chunks are requested from the source
// first, and from the launcher if the source lacks them. Without runs: fetch all from the source
// alone, as a file of its own.
struct Fetch {
  std::uint64_t command = 0;
  ChunkTable table;
  std::vector<ChunkRun> runs;
  std::string path;
  std::string source;  // another host agent; empty: the launcher
};
// A small file, with its text.
struct Put {
  std::uint64_t command = 0;
  std::string path;
  std::string text;
};
// Remove checkpoints of this run directory that are older than the newest of these steps, except
// checkpoints of these steps.
struct Prune {
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
// Accept a link from this agent, which has this public key.
struct Accept {
  std::uint64_t command = 0;
  std::string process;
  std::string key;
};
// Connect to this agent, which accepts a link. Not answered.
struct Connect {
  std::string process;
  std::string host;
  std::string endpoint;
  std::string key;
};

// ---- answers of a host agent

struct Table {  // to Stat
  std::uint64_t command = 0;
  ChunkTable table;
};
struct Accepting {  // to Accept
  std::uint64_t command = 0;
  std::string endpoint;  // empty: the two are linked already
};
struct Done {  // to all other commands
  std::uint64_t command = 0;
  std::uint64_t fetched = 0;  // bytes that the host did not have before
};
struct Failed {
  std::uint64_t command = 0;
  base::ExitCode code = base::ExitCode::internal;
  std::string text;
};

// The index is the kind on the wire.
using Message = std::variant<Get, Chunk, Missing, Wait, Stat, Fetch, Put, Prune, Rewind, Accept,
                             Connect, Table, Accepting, Done, Failed>;

net::Frame format(const Message& message);
// A frame of Chunk. The caller writes the chunk's bytes to `content`, which points into the frame.
net::Frame chunk_frame(const std::string& id, std::uint32_t chunk, std::size_t bytes,
                       std::span<std::byte>& content);

// Checks limits before it allocates memory. base::MessageError names what is wrong. Pure.
Message parse_message(std::span<const std::byte> frame);

}  // namespace strait::transfer::message
