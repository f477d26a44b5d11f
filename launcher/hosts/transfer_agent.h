#pragma once

#include <future>

#include "framework/net/identity.h"
#include "framework/net/link.h"
#include "launcher/hosts/content_store.h"
#include "launcher/hosts/file_fetcher.h"
#include "launcher/hosts/file_request.h"
#include "launcher/hosts/file_server.h"
#include "launcher/hosts/transfer_peers.h"
#include "launcher/hosts/workers.h"

namespace strait::transfer {

struct TransferAgentOptions {
  std::filesystem::path store;         // directory of contents; several processes may share it
  double upload_bytes_per_second = 0;  // to all peers together; 0: no limit
  double download_bytes_per_second = 0;
  std::chrono::seconds stall_timeout{60};  // of a fetch that gets nothing over connected links
  std::function<void(const std::string&)> on_event;  // a message for the log; any thread
  // Of the launcher: sends a request to a host's agent. `on_reply` is called once, on any thread;
  // its failures name the host. Empty: of a host agent.
  std::function<void(const net::ProcessName& host, const FileRequest& request,
                     const OnFileReply& on_reply)>
      ask;
};

// Totals of one process since its start.
struct TransferTotals {
  std::uint64_t sent_bytes = 0;      // of chunks
  std::uint64_t fetched_bytes = 0;   // of chunks that were lacking
  std::uint64_t repeated_bytes = 0;  // of chunks that were received without being wanted
};

// Serves chunks of files to other transfer agents and fetches those that this process lacks: one
// object in the launcher and one in each host agent, each linked with the launcher. Two host agents
// are linked when the launcher lets one fetch from the other. Any thread may call.
class TransferAgent {
 public:
  explicit TransferAgent(TransferAgentOptions options);
  ~TransferAgent();  // closes links and ends fetches; chunks that were fetched stay on disk
  TransferAgent(const TransferAgent&) = delete;
  TransferAgent& operator=(const TransferAgent&) = delete;

  // Takes the link. `host` names the peer in messages. A peer of the same name is replaced. `key`:
  // its public key, with which other host agents link with it.
  void add_peer(const net::ProcessName& peer, const std::string& host,
                std::unique_ptr<net::Link> link, const std::string& key = {});
  bool linked(const net::ProcessName& peer) const { return peers_.find(peer).has_value(); }
  // The peer has ended: fetches no longer wait for chunks that only it has. Without effect if it is
  // not connected.
  void remove_peer(const net::ProcessName& peer, const std::string& cause);

  // Offers a file of this host to all peers from now on. Returns its chunk table. StoreError.
  ChunkTable offer(const std::filesystem::path& path);

  // FileFetcher::fetch.
  std::uint64_t fetch(const FetchRequest& request, const std::vector<net::ProcessName>& sources,
                      const std::function<void()>& poll) {
    return fetcher_.fetch(request, sources, poll);
  }

  // The launcher's requests to a host's agent; paths are of its host. The numbers are fetched
  // bytes, or 0. A future throws the host's error (UserError). See file_request.h.
  std::future<ChunkTable> stat(const net::ProcessName& host, const std::filesystem::path& path);
  // `source`: another host agent that has or fetches the chunks. As::file: from the source alone.
  std::future<std::uint64_t> fetch_on(const net::ProcessName& host, const FetchRequest& request,
                                      const std::optional<net::ProcessName>& source = {});
  std::future<std::uint64_t> put(const net::ProcessName& host, const std::filesystem::path& path,
                                 const std::string& text);
  std::future<std::uint64_t> prune(const net::ProcessName& host,
                                   const std::filesystem::path& run_directory,
                                   const std::vector<store::Step>& steps);
  std::future<std::uint64_t> rewind(const net::ProcessName& host,
                                    const std::filesystem::path& run_directory, store::Step step);

  // Of a host agent: performs requests on files in their order, and a few fetches at a time. Each
  // gets one reply, on any thread, unless this object is destroyed before it began. MessageError:
  // no launcher sends such a request.
  void perform(Stat stat, OnFileReply on_reply);
  void perform(Fetch fetch, OnFileReply on_reply);
  void perform(Put put, OnFileReply on_reply);
  void perform(Prune prune, OnFileReply on_reply);

  TransferTotals totals() const {
    return {server_.sent_bytes(), fetcher_.fetched_bytes(), fetcher_.repeated_bytes()};
  }

 private:
  // A request that is answered by Done.
  std::future<std::uint64_t> ask(const net::ProcessName& host, const FileRequest& request);
  // Calls `then` when the hosts are linked, or cannot be.
  void link_hosts(const net::ProcessName& one, const net::ProcessName& other,
                  const std::function<void()>& then) const;
  void receive(std::size_t peer, message::Message received);
  void disconnected(std::size_t peer, const std::string& cause);

  const TransferAgentOptions options_;
  ContentStore store_;
  TransferPeers peers_;
  FileServer server_;
  FileFetcher fetcher_;
  std::unique_ptr<Workers> file_worker_;  // of a host agent; the other workers, too
  std::unique_ptr<Workers> fetch_workers_;
};

// Waits for a result. `poll` is called while it waits, and throws to give up.
template <class T, class Poll>
T wait_for(std::future<T>& future, const Poll& poll) {
  constexpr std::chrono::milliseconds kPollEvery{20};
  while (future.wait_for(kPollEvery) != std::future_status::ready) poll();
  return future.get();
}

}  // namespace strait::transfer
