#pragma once

#include <functional>
#include <variant>

#include "framework/net/identity.h"
#include "framework/store/sample.h"
#include "launcher/base/errors.h"
#include "launcher/hosts/chunk_table.h"
#include "launcher/hosts/path_request.h"

// Requests of the launcher about the files of a host, and the replies of its agent. They are
// messages of hosts/agent_message.h: on another link than chunks, for which they do not wait.
namespace strait::transfer {

struct Done {
  std::uint64_t fetched = 0;  // bytes that the host did not have before
};

// Asks for the chunk table of a file, and offers the file from then on.
struct Stat {
  using Reply = ChunkTable;
  std::string path;
};

// Fetch these chunks and make `path` a link to the content. Chunks are requested from the source
// first, and from the launcher if the source lacks them. Without runs: fetch all from the source
// alone, as a file of its own.
struct Fetch {
  using Reply = Done;
  ChunkTable table;
  std::vector<ChunkRun> runs;
  std::string path;
  std::optional<net::ProcessName> source;  // another host agent
};

// A small file, with its text.
struct Put {
  using Reply = Done;
  std::string path;
  std::string text;
};

// Of the checkpoints of this run directory, remove those that are older than the newest of these
// steps, except checkpoints of these steps. A run that resumes: set all later ones aside.
struct Prune {
  using Reply = Done;
  std::string path;
  std::vector<store::Step> steps = {};
  std::optional<store::Step> resumed = {};
};

// Link with this agent, which has this public key. Without its endpoint: listen for it. The reply
// has the port where this one listens, unless the two are linked already.
struct LinkWith {
  using Reply = hosts::ListensAt;
  net::ProcessName process;
  std::string key;
  std::string host;  // for messages
  std::string endpoint = {};
};

using FileRequest = std::variant<Stat, Fetch, Put, Prune, LinkWith>;

// Failure: the text does not name the host.
using FileReply = std::variant<base::Failure, Done, hosts::ListensAt, ChunkTable>;
using OnFileReply = std::function<void(const FileReply&)>;

}  // namespace strait::transfer
