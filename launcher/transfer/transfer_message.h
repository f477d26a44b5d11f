#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "framework/net/frame_memory.h"
#include "launcher/base/exit_code.h"
#include "launcher/transfer/chunk_table.h"
#include "launcher/transfer/chunk_set.h"

// What two porters say to each other, as values and as frames. README.md draws the bytes.
namespace strait::transfer::ship {

// ---- between any two

// "I lack chunks of this content: tell me what you have of it, now and whenever there is more."
struct Seek {
  std::string id;
};
// These chunks can be asked for here; those told before can so still.
struct Have {
  std::string id;
  std::vector<ChunkRun> runs;
};
struct Get {
  std::string id;
  std::uint32_t chunk = 0;
  bool insist = false;  // from you, even if somebody else was given it
};
struct Chunk {
  std::string id;
  std::uint32_t chunk = 0;
  std::vector<std::byte> content;  // chunk_frame writes it without a copy
};
// Not sent: it is under way to this process, who will have it.
struct Elsewhere {
  std::string id;
  std::uint32_t chunk = 0;
  std::string process;
};
// Not here any more.
struct Missing {
  std::string id;
  std::uint32_t chunk = 0;
};

// ---- launcher → keeper. `order` names the answer.

// What is the file at this path of yours? It can be asked for from then on.
struct Look {
  std::uint64_t order = 0;
  std::string path;
};
// Fetch these chunks and let `path` name the content.
struct Bring {
  std::uint64_t order = 0;
  ChunkTable table;
  std::vector<ChunkRun> runs;
  std::string path;
};
// A small file, here as it is.
struct Put {
  std::uint64_t order = 0;
  std::string path;
  std::string text;
};
// The answer will not be read: what it asks for need not be fetched.
struct Forget {
  std::uint64_t order = 0;
};

// Another keeper, which waits for a link from this one.
struct Neighbour {
  std::string process;
  std::string host;
  std::string endpoint;
};
// Checkpoints of this run directory that are older than the newest of these steps and not among
// them are not needed any more.
struct Prune {
  std::uint64_t order = 0;
  std::string path;
  std::vector<std::uint64_t> steps;
};
// The run goes on from this step: what this directory has of later checkpoints never was.
struct Rewind {
  std::uint64_t order = 0;
  std::string path;
  std::uint64_t step = 0;
};

// ---- keeper → launcher

// Other keepers reach this one here.
struct Listening {
  std::string endpoint;
};
struct Seen {
  std::uint64_t order = 0;
  ChunkTable table;
};
struct Brought {  // Bring, Put, Prune and Rewind
  std::uint64_t order = 0;
  std::uint64_t fetched = 0;  // bytes that were not here before
};
struct Refused {
  std::uint64_t order = 0;
  base::ExitCode code = base::ExitCode::internal;
  std::string text;  // one sentence
};

using Message = std::variant<Seek, Have, Get, Chunk, Elsewhere, Missing, Look, Bring, Put, Forget,
                             Seen, Brought, Refused, Neighbour, Prune, Listening, Rewind>;

// Whoever gets one talks to something that is not strait.
class MessageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

net::Frame format(const Message& message);
// A frame of Chunk whose content the caller writes into the returned place.
net::Frame chunk_frame(const std::string& id, std::uint32_t chunk, std::size_t bytes,
                       std::span<std::byte>& content);

// Limits are checked before memory is spent. MessageError names what is wrong. Pure.
Message parse_message(std::span<const std::byte> frame);

}  // namespace strait::transfer::ship
