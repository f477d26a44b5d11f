#include "launcher/transfer/transfer_commands.h"

#include <utility>
#include <vector>

#include "framework/store/atomic_file.h"
#include "framework/store/checkpoint.h"
#include "framework/store/memory_file.h"
#include "framework/store/store_error.h"
#include "launcher/base/errors.h"

namespace strait::transfer {
namespace {

void set_error(PendingCommands::Result& result, const std::exception_ptr& error) {
  std::visit([&error](auto& promise) { promise.set_exception(error); }, result);
}

[[noreturn]] void unexpected_result() {
  throw base::MessageError("protocol error: a result without a command");
}

}  // namespace

void PendingCommands::add(std::uint64_t command, std::size_t peer, std::shared_ptr<Result> result) {
  pending_[command] = {peer, std::move(result)};
}

template <class T>
void PendingCommands::complete(std::size_t peer, std::uint64_t command, const T& value) {
  const auto found = pending_.find(command);
  if (found == pending_.end()) return;
  auto* promise = std::get_if<std::promise<T>>(found->second.result.get());
  if (found->second.peer != peer || promise == nullptr) unexpected_result();
  promise->set_value(value);
  pending_.erase(found);
}

template void PendingCommands::complete(std::size_t, std::uint64_t, const ChunkTable&);
template void PendingCommands::complete(std::size_t, std::uint64_t, const std::uint64_t&);

void PendingCommands::fail(std::size_t peer, std::uint64_t command,
                           const std::exception_ptr& error) {
  const auto found = pending_.find(command);
  if (found == pending_.end()) return;
  if (found->second.peer != peer) unexpected_result();
  set_error(*found->second.result, error);
  pending_.erase(found);
}

void PendingCommands::fail_all(std::size_t peer, const std::exception_ptr& error) {
  std::erase_if(pending_, [&](const auto& entry) {
    if (entry.second.peer != peer) return false;
    set_error(*entry.second.result, error);
    return true;
  });
}

std::optional<std::size_t> PendingCommands::cancel(std::uint64_t command) {
  const auto pending = pending_.extract(command);
  if (pending.empty()) return std::nullopt;
  return pending.mapped().peer;
}

void offer_file(ChunkSource& chunk_source, TransferPeers& peers, const std::filesystem::path& path,
                const ChunkTable& table) {
  chunk_source.remove_deleted();
  const ChunkSet chunks = ChunkSet::all(table.count());
  chunk_source.offer({table, path, chunks, nullptr});
  peers.announce(table.id(), chunks.runs());
}

void HostCommands::send_failure(std::size_t peer, std::uint64_t command,
                                const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    const base::Failure failure = base::describe_failure(known);
    peers_.send(peer, message::Failed{command, failure.code, failure.text});
  }
}

void HostCommands::run(std::size_t peer, const message::Stat& stat) {
  const auto table = std::make_shared<ChunkTable>();
  file_worker_.run([this, path = stat.path, table] { *table = tables_.table(path); },
                   [this, peer, stat, table](const std::exception_ptr& error) {
                     if (error) return send_failure(peer, stat.command, error);
                     // Offered before the result is sent: the launcher may request chunks at once.
                     offer_file(chunk_source_, peers_, stat.path, *table);
                     peers_.send(peer, message::StatResult{stat.command, std::move(*table)});
                   });
}

void HostCommands::run(std::size_t peer, const message::Fetch& fetch) {
  FetchRequest request{fetch.table, ChunkSet(fetch.table.count()), fetch.path,
                       FetchRequest::As::content};
  if (!request.chunks.insert(fetch.runs)) {
    throw base::MessageError("protocol error: chunk runs beyond the end of the file");
  }
  const std::uint64_t number = ++numbers_;
  fetch_numbers_[fetch.command] = number;
  fetches_.start(number, std::move(request),
                 [this, peer, command = fetch.command](const std::exception_ptr& error,
                                                       std::uint64_t fetched) {
                   fetch_numbers_.erase(command);
                   if (error) return send_failure(peer, command, error);
                   peers_.send(peer, message::Done{command, fetched});
                 });
}

void HostCommands::run(std::size_t /*peer*/, const message::Cancel& cancel) {
  const auto number = fetch_numbers_.extract(cancel.command);
  if (!number.empty()) fetches_.cancel(number.mapped());
}

void HostCommands::run_file_command(std::size_t peer, std::uint64_t command,
                                    std::function<void()> work) {
  file_worker_.run(std::move(work), [this, peer, command](const std::exception_ptr& error) {
    if (error) return send_failure(peer, command, error);
    peers_.send(peer, message::Done{command, 0});
  });
}

void HostCommands::run(std::size_t peer, const message::WriteFile& write) {
  run_file_command(peer, write.command, [write] {
    store::make_directory(std::filesystem::path(write.path).parent_path());
    store::replace_file(write.path, write.text);
  });
}

void HostCommands::run(std::size_t peer, const message::PruneCheckpoints& prune) {
  run_file_command(peer, prune.command, [prune] {
    std::vector<store::Step> steps;
    for (const std::uint64_t step : prune.steps) {
      steps.push_back(store::Step{static_cast<std::int64_t>(step)});
    }
    const store::Pruned pruned = store::prune_all_but(prune.path, steps);
    if (pruned.left.empty()) return;
    throw store::StoreError(store::StoreError::Kind::storage_io, pruned.left.front().reason);
  });
}

void HostCommands::run(std::size_t peer, const message::Rewind& rewind) {
  run_file_command(peer, rewind.command, [rewind] {
    store::set_aside_newer(rewind.path, store::Step{static_cast<std::int64_t>(rewind.step)},
                           store::Uncommitted::set_aside);
  });
}

void HostCommands::hold(const ChunkTable& table, FileDescriptor content) {
  const ChunkSet chunks = ChunkSet::all(table.count());
  chunk_source_.hold({table, store::descriptor_path(content.number()), chunks, nullptr});
  peers_.announce(table.id(), chunks.runs());
  held_.insert_or_assign(table.id(), std::move(content));
}

void HostCommands::run(std::size_t peer, const message::HoldMemory& hold) {
  struct Opened {
    FileDescriptor content;
    ChunkTable table;
  };
  const auto opened = std::make_shared<Opened>();
  file_worker_.run(
      [path = hold.path, opened] {
        opened->content = store::open_sealed(path);
        opened->table = read_chunk_table(store::descriptor_path(opened->content.number()));
      },
      [this, peer, command = hold.command, opened](const std::exception_ptr& error) {
        if (error) return send_failure(peer, command, error);
        this->hold(opened->table, std::move(opened->content));
        peers_.send(peer, message::StatResult{command, std::move(opened->table)});
      });
}

void HostCommands::run(std::size_t peer, const message::FetchToMemory& fetch) {
  const auto content = std::make_shared<FileDescriptor>();
  try {
    *content = store::create_memory("checkpoint");
  } catch (const store::StoreError&) {
    return send_failure(peer, fetch.command, std::current_exception());
  }
  const std::uint64_t number = ++numbers_;
  coming_[fetch.table.id()] = number;
  const FetchRequest request{fetch.table, ChunkSet::all(fetch.table.count()),
                             store::descriptor_path(content->number()), FetchRequest::As::memory};
  fetches_.start(number, request,
                 [this, peer, command = fetch.command, table = fetch.table, content](
                     const std::exception_ptr& error, std::uint64_t fetched) {
                   coming_.erase(table.id());
                   if (error) return send_failure(peer, command, error);
                   try {
                     store::seal_memory(*content);
                   } catch (const store::StoreError&) {
                     return send_failure(peer, command, std::current_exception());
                   }
                   hold(table, std::move(*content));
                   peers_.send(peer, message::Done{command, fetched});
                 });
}

void HostCommands::run(std::size_t peer, const message::Release& release) {
  for (std::size_t at = 0; at < release.ids.size(); at += ChunkTable::kDigits) {
    const std::string id = release.ids.substr(at, ChunkTable::kDigits);
    held_.erase(id);
    // Otherwise it would be held for ever once it is here.
    if (const auto coming = coming_.extract(id)) fetches_.cancel(coming.mapped());
  }
  peers_.send(peer, message::Done{release.command, 0});
}

}  // namespace strait::transfer
