#include "launcher/transfer/host_commands.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "framework/store/atomic_file.h"
#include "framework/store/checkpoint.h"
#include "framework/store/store_error.h"
#include "launcher/base/errors.h"

namespace strait::transfer {
namespace {

net::ProcessName parse_name(const std::string& text) {
  const auto name = net::ProcessName::parse(text);
  if (!name) throw base::MessageError("protocol error: not a process name");
  return *name;
}

}  // namespace

void HostCommands::answer(std::size_t peer, std::uint64_t command,
                          const std::function<message::Message()>& work) {
  try {
    peers_.send(peer, work());
  } catch (const std::exception& error) {
    const base::Failure failure = base::describe_failure(error);
    peers_.send(peer, message::Failed{command, failure.code, failure.text});
  }
}

void HostCommands::run(std::size_t peer, message::Stat stat) {
  file_worker_.add([this, peer, stat = std::move(stat)] {
    answer(peer, stat.command, [&]() -> message::Message {
      ChunkTable table = store_.table_of(stat.path);
      server_.offer(table, stat.path);
      return message::Table{stat.command, std::move(table)};
    });
  });
}

void HostCommands::run(std::size_t peer, message::Fetch fetch) {
  ChunkSet chunks(fetch.table.count());
  if (!chunks.insert(fetch.runs)) {
    throw base::MessageError("protocol error: chunk runs beyond the end of the file");
  }
  std::vector<net::ProcessName> sources;
  if (!fetch.source.empty()) sources.push_back(parse_name(fetch.source));
  const bool content = !fetch.runs.empty();
  if (content) {
    sources.push_back(net::ProcessName::coordinator());
    // Now, and not when it begins: the launcher may send another host here at once.
    server_.expect(fetch.table, chunks);
  }
  fetch_workers_.add([this, peer, fetch = std::move(fetch), sources, chunks, content] {
    answer(peer, fetch.command, [&]() -> message::Message {
      const FetchRequest request =
          content ? FetchRequest{fetch.table, chunks, fetch.path, FetchRequest::As::content}
                  : FetchRequest{fetch.table, ChunkSet::all(fetch.table.count()), fetch.path,
                                 FetchRequest::As::file};
      return message::Done{fetch.command, fetcher_.fetch(request, sources, [] {})};
    });
    if (content) server_.ended(fetch.table.id());
  });
}

void HostCommands::run(std::size_t peer, message::Put put) {
  file_worker_.add([this, peer, put = std::move(put)] {
    answer(peer, put.command, [&]() -> message::Message {
      store::make_directory(std::filesystem::path(put.path).parent_path());
      store::replace_file(put.path, put.text);
      return message::Done{put.command, 0};
    });
  });
}

void HostCommands::run(std::size_t peer, message::Prune prune) {
  file_worker_.add([this, peer, prune = std::move(prune)] {
    answer(peer, prune.command, [&]() -> message::Message {
      std::vector<store::Step> steps;
      for (const std::uint64_t step : prune.steps) {
        steps.push_back(store::Step{static_cast<std::int64_t>(step)});
      }
      const store::Pruned pruned = store::prune_all_but(prune.path, steps);
      if (pruned.left.empty()) return message::Done{prune.command, 0};
      throw store::StoreError(store::StoreError::Kind::storage_io, pruned.left.front().reason);
    });
  });
}

void HostCommands::run(std::size_t peer, message::Rewind rewind) {
  file_worker_.add([this, peer, rewind = std::move(rewind)] {
    answer(peer, rewind.command, [&]() -> message::Message {
      store::set_aside_newer(rewind.path, store::Step{static_cast<std::int64_t>(rewind.step)},
                             store::Uncommitted::set_aside);
      return message::Done{rewind.command, 0};
    });
  });
}

void HostCommands::run(std::size_t peer, const message::Accept& accept) {
  answer(peer, accept.command, [&]() -> message::Message {
    return message::Accepting{accept.command,
                              links_.accept(parse_name(accept.process), accept.key)};
  });
}

void HostCommands::run(std::size_t /*peer*/, const message::Connect& connect) {
  links_.connect(connect, parse_name(connect.process));
}

}  // namespace strait::transfer
