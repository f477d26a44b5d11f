#pragma once

#include <functional>
#include <variant>

#include "framework/net/identity.h"
#include "framework/store/sample.h"
#include "launcher/base/errors.h"
#include "launcher/hosts/chunk_table.h"

// Requests of the launcher about the files of a host, and the replies of its agent. They are
// messages of hosts/agent_message.h: on another link than chunks, for which they do not wait.
namespace strait::transfer {

// Asks for the chunk table of a file, and offers the file from then on.
struct Stat {
  std::string path;
};

// Fetch these chunks and make `path` a link to the content. Chunks are requested from the source
// first, and from the launcher if the source lacks them. Without runs: fetch all from the source
// alone, as a file of its own.
struct Fetch {
  ChunkTable table;
  std::vector<ChunkRun> runs;
  std::string path;
  std::optional<net::ProcessName> source;  // another host agent
};

// A small file, with its text.
struct Put {
  std::string path;
  std::string text;
};

// Remove checkpoints of this run directory that are older than the newest of these steps, except
// checkpoints of these steps.
struct Prune {
  std::string path;
  std::vector<store::Step> steps;
};

// The run resumes from this step: set all later checkpoints of this run directory aside.
struct Rewind {
  std::string path;
  store::Step step{};
};

// Accept a link from this agent, which has this public key.
struct Accept {
  net::ProcessName process;
  std::string key;
};

// Connect to this agent, which accepts a link.
struct Connect {
  net::ProcessName process;
  std::string host;  // for messages
  std::string endpoint;
  std::string key;
};

using FileRequest = std::variant<Stat, Fetch, Put, Prune, Rewind, Accept, Connect>;

struct ListensAt {       // to Accept
  std::string endpoint;  // empty: the two are linked already
};

struct Done {
  std::uint64_t fetched = 0;  // bytes that the host did not have before
};

// ChunkTable: to Stat. Failure: the text does not name the host.
using FileReply = std::variant<base::Failure, Done, ListensAt, ChunkTable>;
using OnFileReply = std::function<void(const FileReply&)>;

}  // namespace strait::transfer
