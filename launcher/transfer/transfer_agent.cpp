#include "launcher/transfer/transfer_agent.h"

#include <utility>
#include <variant>

#include "launcher/transfer/porter_work.h"

namespace strait::transfer {

namespace fs = std::filesystem;

namespace {

// Gives the order a number, and sends it when the porter's thread comes to it.
template <class Value, class Order>
std::future<Value> order_to(PorterWork& work, const net::ProcessName& keeper, Order order) {
  auto answer = std::make_shared<PorterWork::Answer>(std::promise<Value>());
  auto future = std::get<std::promise<Value>>(*answer).get_future();
  order.order = work.next_number();
  work.inbox().add([&work, keeper, order = std::move(order), answer] {
    work.tell(keeper, order.order, order, answer);
  });
  return future;
}

}  // namespace

TransferAgent::TransferAgent(TransferAgentOptions options) : work_(std::make_unique<PorterWork>(std::move(options))) {}
TransferAgent::~TransferAgent() = default;

void TransferAgent::join(const net::ProcessName& peer, const std::string& host,
                  std::unique_ptr<net::Link> link) {
  const auto held = std::make_shared<std::unique_ptr<net::Link>>(std::move(link));
  work_->inbox().add(
      [work = work_.get(), peer, host, held] { work->joined(peer, host, std::move(*held)); });
}

ChunkTable TransferAgent::offer(const fs::path& path) {
  ChunkTable table = work_->tables().table(path);
  work_->inbox().add([work = work_.get(), path, table] { work->offered(path, table); });
  return table;
}

TransferAgent::Fetching TransferAgent::fetch(FetchRequest order) {
  const auto promise = std::make_shared<std::promise<std::uint64_t>>();
  const std::uint64_t number = work_->next_number();
  work_->inbox().add([work = work_.get(), number, order = std::move(order), promise] {
    work->desk().start(number, order, [promise](const std::exception_ptr& error, auto fetched) {
      error ? promise->set_exception(error) : promise->set_value(fetched);
    });
  });
  return {number, promise->get_future()};
}

void TransferAgent::forget(std::uint64_t number) {
  work_->inbox().add([work = work_.get(), number] { work->forget(number); });
}

std::future<ChunkTable> TransferAgent::look(const net::ProcessName& keeper, const fs::path& path) {
  return order_to<ChunkTable>(*work_, keeper, ship::Look{0, path.string()});
}

std::future<std::uint64_t> TransferAgent::bring(const net::ProcessName& keeper, const FetchRequest& order) {
  return order_to<std::uint64_t>(
      *work_, keeper, ship::Bring{0, order.table, order.chunks.runs(), order.path.string()});
}

std::future<std::uint64_t> TransferAgent::put(const net::ProcessName& keeper, const fs::path& path,
                                       const std::string& text) {
  return order_to<std::uint64_t>(*work_, keeper, ship::Put{0, path.string(), text});
}

std::future<std::uint64_t> TransferAgent::prune(const net::ProcessName& keeper,
                                         const fs::path& run_directory,
                                         const std::vector<std::uint64_t>& steps) {
  return order_to<std::uint64_t>(*work_, keeper, ship::Prune{0, run_directory.string(), steps});
}

std::future<std::uint64_t> TransferAgent::rewind(const net::ProcessName& keeper,
                                          const fs::path& run_directory, std::uint64_t step) {
  return order_to<std::uint64_t>(*work_, keeper, ship::Rewind{0, run_directory.string(), step});
}

void TransferAgent::tell_where(const std::string& endpoint) {
  work_->inbox().add([work = work_.get(), endpoint] { work->listens(endpoint); });
}

TransferTotals TransferAgent::state() const { return work_->state(); }

}  // namespace strait::transfer
