// SPDX-License-Identifier: Apache-2.0
//
// The pump, the watch for silent ranks, and the ways in which a call ends. Read next: messages.h, ranks.cpp.
#include "messages.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "regard/runtime.h"

namespace regard::inline v0::internal {
namespace {

using namespace std::chrono_literals;

constexpr int kControlTag = 1, kDataTag = 0;
constexpr int kBusyRounds = 64;     // rounds without a sleep after something has happened
constexpr auto kShortSleep = 50us;  // while messages are in flight
constexpr auto kLongSleep = 5ms;    // while only control messages may arrive
constexpr auto kFarewell = 2s;      // for the report of a failure to leave this process
constexpr int kSignsPerTimeout = 8;

std::string seconds_text(std::chrono::duration<double> seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", seconds.count());
  return text;
}

// Memory that a transport may still write to.
void keep_forever(std::shared_ptr<const void> memory) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::shared_ptr<const void>>();
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(memory));
}

}  // namespace

Messages::Messages(std::unique_ptr<Transport> transport, const RanksOptions& options)
    : transport_(std::move(transport)), options_(options) {
  if (!(options.timeout.count() > 0))
    throw InvalidArgument("Ranks: timeout is " + seconds_text(options.timeout) + " s; expected a value above 0");
  if (!transport_) return;
  rank_ = transport_->rank();
  num_ranks_ = transport_->num_ranks();
  if (num_ranks_ == 1) return;
  peers_.resize(static_cast<std::size_t>(num_ranks_));
  const std::lock_guard lock(mutex_);
  for (Index peer = 0; peer < num_ranks_; ++peer) {
    peers_[static_cast<std::size_t>(peer)].last_message = Clock::now();
    if (peer != rank_) receive_control(peer);
  }
  last_alive_ = Clock::now();
  if (transport_->may_use_thread()) thread_ = std::thread([this] { run_thread(); });
}

Messages::~Messages() {
  if (num_ranks_ > 1) {
    std::unique_lock lock(mutex_);
    if (!failure_) {
      for (Index peer = 0; peer < num_ranks_; ++peer) {
        if (peer == rank_ || peers_[static_cast<std::size_t>(peer)].gone) continue;
        if (at_once_) {
          send_control(peer, Control::gone, rank_, " has left because of an exception");
        } else {
          send_control(peer, Control::leaving, rank_, " has left: it makes no further calls");
        }
      }
      wait_began_ = Clock::now();
      waiting_ = true;
      while (!failure_ && !may_end() && (!at_once_ || Clock::now() - wait_began_ < kFarewell)) {
        if (thread_.joinable()) {
          changed_.wait_for(lock, kLongSleep);
        } else if (!pump()) {
          lock.unlock();
          std::this_thread::sleep_for(kShortSleep);
          lock.lock();
        }
      }
    }
    stop_thread_ = true;
    changed_.notify_all();
    lock.unlock();
    if (thread_.joinable()) thread_.join();
  }
  if (!pending_.empty()) {
    keep_forever(std::make_shared<std::map<Ticket, Pending>>(std::move(pending_)));
    keep_forever(std::make_shared<std::vector<Peer>>(std::move(peers_)));
  }
}

std::string Messages::name(Index rank) const {
  return "rank " + std::to_string(rank) + " of " + std::to_string(num_ranks_);
}

Messages::Ticket Messages::submit(bool is_send, Index peer, std::span<std::byte> bytes,
                                  std::shared_ptr<const void> keep) {
  const std::lock_guard lock(mutex_);
  const Ticket ticket = next_ticket_++;
  requests_.push_back({ticket, is_send, peer, bytes, std::move(keep)});
  ++num_data_;
  changed_.notify_all();
  return ticket;
}
Messages::Ticket Messages::send(Index to, std::span<const std::byte> bytes, std::shared_ptr<const void> keep) {
  // A transport only reads what it sends.
  return submit(true, to, {const_cast<std::byte*>(bytes.data()), bytes.size()}, std::move(keep));
}
Messages::Ticket Messages::receive(Index from, std::span<std::byte> bytes, std::shared_ptr<const void> keep) {
  return submit(false, from, bytes, std::move(keep));
}

void Messages::wait(Ticket ticket, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const auto is_done = [&] {
    const bool requested =
        std::any_of(requests_.begin(), requests_.end(), [&](const Request& r) { return r.ticket == ticket; });
    return !requested && !pending_.contains(ticket);
  };
  wait_began_ = Clock::now();
  int quiet_rounds = 0;
  while (!failure_ && !is_done()) {
    if (stop.stop_requested()) {
      set_failure(rank_, name(rank_) + " failed: the call was cancelled", true);
      lock.unlock();
      throw_if_stopped(stop, "a call over several ranks");
    }
    waiting_ = true;
    if (thread_.joinable()) {
      changed_.wait_for(lock, 10ms);
    } else if (pump()) {
      quiet_rounds = 0;
    } else if (++quiet_rounds > kBusyRounds) {
      lock.unlock();
      std::this_thread::sleep_for(kShortSleep);
      lock.lock();
    }
  }
  waiting_ = false;
  if (failure_) throw RankError(failure_->rank, failure_->text);
}
void Messages::wait(std::span<const Ticket> tickets, const std::stop_token& stop) {
  for (const Ticket ticket : tickets) wait(ticket, stop);
  throw_if_failed();
}

void Messages::progress() {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) pump();
}

void Messages::fail(std::string_view text) noexcept {
  if (num_ranks_ == 1) return;
  try {
    const std::lock_guard lock(mutex_);
    if (!failure_) set_failure(rank_, name(rank_) + " failed: " + std::string(text), true);
  } catch (...) {
    // Out of memory: the others notice that this rank is silent.
  }
}
void Messages::throw_if_failed() {
  const std::lock_guard lock(mutex_);
  if (failure_) throw RankError(failure_->rank, failure_->text);
}

void Messages::run_thread() {
  std::unique_lock lock(mutex_);
  int quiet_rounds = 0;
  while (!stop_thread_) {
    quiet_rounds = pump() ? 0 : quiet_rounds + 1;
    if (num_data_ > 0 && quiet_rounds < kBusyRounds) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    } else if (num_data_ > 0) {
      changed_.wait_for(lock, kShortSleep);
    } else {
      changed_.wait_for(lock, kLongSleep);
    }
  }
}

bool Messages::pump() {
  if (failure_) return false;
  bool happened = false;
  try {
    happened = exchange();
  } catch (const RankError& error) {
    set_failure(error.rank(), error.rank() < 0 ? error.what() : name(error.rank()) + " does not respond", true);
    return true;
  } catch (const std::exception& error) {
    set_failure(rank_, name(rank_) + " failed: " + error.what(), true);
    return true;
  }
  const auto now = Clock::now();
  if (now - last_alive_ > options_.timeout / kSignsPerTimeout) {
    last_alive_ = now;
    for (Index peer = 0; peer < num_ranks_; ++peer) {
      if (peer != rank_ && !peers_[static_cast<std::size_t>(peer)].left) send_control(peer, Control::alive, rank_, "");
    }
  }
  look_for_silence();
  return happened;
}

bool Messages::exchange() {
  bool happened = !requests_.empty();
  while (!requests_.empty()) {
    const Request request = std::move(requests_.front());
    requests_.pop_front();
    pending_.emplace(request.ticket, Pending{request.peer, false, request.is_send, request.keep});
    Peer& peer = peers_[static_cast<std::size_t>(request.peer)];
    if (request.is_send) {
      ++peer.num_sent;
      transport_->start_send(request.peer, kDataTag, request.bytes, request.ticket);
    } else {
      ++peer.num_receives;
      transport_->start_receive(request.peer, kDataTag, request.bytes, request.ticket);
      check_left(request.peer);
    }
  }
  std::vector<Ticket> done;
  transport_->completed(done);
  for (const Ticket ticket : done) {
    finish(ticket);
    happened = true;
  }
  if (!done.empty()) changed_.notify_all();
  return happened;
}

void Messages::finish(Ticket ticket) {
  const auto found = pending_.find(ticket);
  if (found == pending_.end()) return;
  const Pending pending = std::move(found->second);
  pending_.erase(found);
  if (!pending.is_control) --num_data_;
  if (pending.is_send) return;
  peers_[static_cast<std::size_t>(pending.peer)].last_message = Clock::now();
  if (pending.is_control) take_control(pending.peer);
}

std::size_t Messages::text_size(const ControlMessage& message) {
  return static_cast<std::size_t>(std::find(std::begin(message.text), std::end(message.text), '\0') -
                                  std::begin(message.text));
}

void Messages::receive_control(Index peer) {
  const Ticket ticket = next_ticket_++;
  pending_.emplace(ticket, Pending{peer, true, false, {}});
  ControlMessage& incoming = peers_[static_cast<std::size_t>(peer)].incoming;
  transport_->start_receive(peer, kControlTag, std::as_writable_bytes(std::span(&incoming, 1)), ticket);
}

void Messages::take_control(Index peer) {
  Peer& from = peers_[static_cast<std::size_t>(peer)];
  const ControlMessage& message = from.incoming;
  if (message.kind == Control::failed || message.kind == Control::missed) {
    // Its own message may not have arrived yet, and it waits for this rank as well.
    if (message.kind == Control::missed) peers_[static_cast<std::size_t>(message.rank)].left = true;
    if (!failure_) set_failure(message.rank, std::string(message.text, text_size(message)), false);
    return;
  }
  if (message.kind == Control::leaving || message.kind == Control::gone) {
    from.left = true;
    from.gone = message.kind == Control::gone;
    from.last_num = message.num_sent;
    from.farewell = std::string(message.text, text_size(message));
    return check_left(peer);
  }
  receive_control(peer);
}

void Messages::send_control(Index peer, Control kind, Index rank, std::string_view text) {
  const auto message = std::make_shared<ControlMessage>();
  message->kind = kind;
  message->rank = static_cast<std::int32_t>(rank);
  message->num_sent = peers_[static_cast<std::size_t>(peer)].num_sent;
  std::memcpy(message->text, text.data(), std::min(text.size(), sizeof message->text - 1));
  const Ticket ticket = next_ticket_++;
  pending_.emplace(ticket, Pending{peer, true, true, message});
  transport_->start_send(peer, kControlTag, std::as_bytes(std::span(message.get(), 1)), ticket);
}

void Messages::look_for_silence() {
  if (!waiting_) return;
  const auto now = Clock::now();
  for (Index peer = 0; peer < num_ranks_ && !failure_; ++peer) {
    const Peer& other = peers_[static_cast<std::size_t>(peer)];
    if (peer == rank_ || other.left) continue;
    if (now - std::max(other.last_message, wait_began_) > options_.timeout)
      set_failure(peer, name(peer) + " does not respond: nothing received for " + seconds_text(options_.timeout) + " s",
                  true);
  }
}

void Messages::check_left(Index peer) {
  const Peer& other = peers_[static_cast<std::size_t>(peer)];
  if (other.left && other.num_receives > other.last_num && !failure_)
    set_failure(peer, name(peer) + other.farewell, true);
}

// Notifies the others first, because the transport is not used afterwards.
void Messages::set_failure(Index rank, std::string text, bool tell) {
  failure_ = Failure{rank, std::move(text)};
  changed_.notify_all();
  try {
    std::vector<Ticket> news;
    const bool waits =
        rank >= 0 && peers_[static_cast<std::size_t>(rank)].left && !peers_[static_cast<std::size_t>(rank)].gone;
    const Control kind = waits ? Control::missed : Control::failed;
    for (Index peer = 0; peer < num_ranks_; ++peer) {
      const Peer& other = peers_[static_cast<std::size_t>(peer)];
      if (peer == rank_ || other.gone || (!other.left && (!tell || peer == rank))) continue;
      news.push_back(next_ticket_);
      // A rank that has left is waiting for this one.
      other.left ? send_control(peer, Control::gone, rank_, " has left because of an exception")
                 : send_control(peer, kind, rank, failure_->text);
    }
    const auto end = Clock::now() + kFarewell;
    const auto under_way = [&](Ticket ticket) { return pending_.contains(ticket); };
    while (std::any_of(news.begin(), news.end(), under_way) && Clock::now() < end) {
      if (!exchange()) std::this_thread::sleep_for(kShortSleep);
    }
  } catch (const RankError&) {
    // The others notice by themselves.
  }
}

// All messages have arrived; unless the object ends immediately, those of the other ranks as well.
bool Messages::may_end() const {
  const bool sending = std::any_of(pending_.begin(), pending_.end(), [](const auto& p) { return p.second.is_send; });
  if (!requests_.empty() || sending) return false;
  return at_once_ || std::all_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
           return peer.left || &peer == &peers_[static_cast<std::size_t>(rank_)];
         });
}

void broadcast(Messages& messages, std::vector<double>& numbers, Index from, const std::stop_token& stop) {
  const auto bytes = std::make_shared<std::vector<double>>(numbers);
  const auto raw = std::as_writable_bytes(std::span(*bytes));
  if (raw.empty()) return;
  std::vector<Messages::Ticket> tickets;
  if (messages.rank() != from) {
    tickets.push_back(messages.receive(from, raw, bytes));
  } else {
    for (Index to = 0; to < messages.num_ranks(); ++to) {
      if (to != from) tickets.push_back(messages.send(to, raw, bytes));
    }
  }
  messages.wait(tickets, stop);
  numbers = *bytes;
}

void sum_in_row_order(Messages& messages, const std::vector<Index>& row_starts, Index rounds, std::vector<double>& sums,
                      const std::function<void(Index)>& add, const std::stop_token& stop) {
  std::vector<Index> with_rows;
  for (std::size_t r = 0; r + 1 < row_starts.size(); ++r) {
    if (row_starts[r] < row_starts[r + 1]) with_rows.push_back(static_cast<Index>(r));
  }
  if (with_rows.empty()) return;
  const auto pass = [&](bool is_send, Index peer) {
    const auto bytes = std::make_shared<std::vector<double>>(sums);
    const auto raw = std::as_writable_bytes(std::span(*bytes));
    messages.wait(is_send ? messages.send(peer, raw, bytes) : messages.receive(peer, raw, bytes), stop);
    sums = *bytes;
  };
  const auto own = std::find(with_rows.begin(), with_rows.end(), messages.rank());
  for (Index round = 0; round < rounds && own != with_rows.end(); ++round) {
    const bool is_first = own == with_rows.begin(), is_last = std::next(own) == with_rows.end();
    if (with_rows.size() > 1 && !(is_first && round == 0)) pass(false, is_first ? with_rows.back() : *std::prev(own));
    add(round);
    if (with_rows.size() > 1 && !(is_last && round + 1 == rounds))
      pass(true, is_last ? with_rows.front() : *std::next(own));
  }
  broadcast(messages, sums, with_rows.back(), stop);
}

}  // namespace regard::inline v0::internal
