#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "framework/net/link.h"
#include "framework/net/process_name.h"
#include "launcher/transfer/content_store.h"
#include "launcher/transfer/chunk_table.h"
#include "launcher/transfer/destination_file.h"
#include "launcher/transfer/chunk_set.h"

namespace strait::transfer {

class PorterWork;

struct TransferAgentOptions {
  std::filesystem::path store;  // the directory for content; several processes may share it
  std::uint64_t store_limit = ContentStore::kUsualLimit;
  double upload_bytes_per_second = 0;  // of all that this process ships; 0: no limit
  double download_bytes_per_second = 0;
  std::chrono::seconds patience{60};  // for a fetch to which nothing comes over paths that stand
  bool takes_orders = false;          // from the coordinator: a keeper
  std::function<void(const std::string&)> on_event;  // one sentence each; on the porter's thread
  // Another keeper waits for a link from here; likewise.
  std::function<void(const net::ProcessName&, const std::string& host, const std::string& endpoint)>
      on_neighbour;
};

// What one process ships and has shipped so far.
struct TransferTotals {
  std::uint64_t sent_bytes = 0;      // of chunks
  std::uint64_t fetched_bytes = 0;   // of chunks that were lacking
  std::uint64_t repeated_bytes = 0;  // of chunks that came and were not lacking
};

// Gives chunks of files to others and fetches those that this process lacks, from whoever has
// them: one object in the launcher and in each keeper, one link to each other one. Orders end with
// a value or with the error of whoever could not do it (UserError, StoreError); one that is given
// to a peer ends when the peer is gone. Any thread may call; only table() reads before it returns.
class TransferAgent {
 public:
  explicit TransferAgent(TransferAgentOptions options);
  ~TransferAgent();  // ends the links and what is under way; what has been fetched stays
  TransferAgent(const TransferAgent&) = delete;
  TransferAgent& operator=(const TransferAgent&) = delete;

  // The link is the porter's from now on. `host` is what sentences call the peer. A peer that is
  // there already is replaced.
  void join(const net::ProcessName& peer, const std::string& host, std::unique_ptr<net::Link> link);

  // The table of a file here, which can be fetched from here from now on. StoreError.
  ChunkTable offer(const std::filesystem::path& path);

  // Fetches what this process lacks of it. The number is for forget().
  struct Fetching {
    std::uint64_t number = 0;
    std::future<std::uint64_t> fetched;  // bytes that were not here before
  };
  Fetching fetch(FetchRequest order);
  // The future is broken (std::future_error) unless it has a value by then.
  void forget(std::uint64_t number);

  // Orders to a keeper. Paths are those of its host.
  std::future<ChunkTable> look(const net::ProcessName& keeper, const std::filesystem::path& path);
  std::future<std::uint64_t> bring(const net::ProcessName& keeper, const FetchRequest& order);
  std::future<std::uint64_t> put(const net::ProcessName& keeper, const std::filesystem::path& path,
                                 const std::string& text);

  // Lets go of checkpoints of this run directory: see ship::Prune.
  std::future<std::uint64_t> prune(const net::ProcessName& keeper,
                                   const std::filesystem::path& run_directory,
                                   const std::vector<std::uint64_t>& steps);

  // Lets go of all later checkpoints: see ship::Rewind.
  std::future<std::uint64_t> rewind(const net::ProcessName& keeper,
                                    const std::filesystem::path& run_directory, std::uint64_t step);

  // A keeper's other keepers reach it here.
  void tell_where(const std::string& endpoint);

  TransferTotals state() const;

 private:
  std::unique_ptr<PorterWork> work_;
};

}  // namespace strait::transfer
