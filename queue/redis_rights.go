package queue

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// rightsAdvice is where a user of Redis reads what to allow.
const rightsAdvice = `docs/deploy.md, "Redis", has what the user needs`

// scriptCalls are the commands in the scripts.
var scriptCalls = regexp.MustCompile(`redis\.call\('([A-Z]+)'`)

// needs are the commands that a user must be allowed to run on the store's keys
// and its channel, beside those that begin a script.
func needs() []string {
	out := []string{"subscribe"}
	for _, source := range []string{
		commonLua, putLua, claimLua, extendLua, finishLua, parkLua, sendLua, appendLua, takeLua, listLua, expireLua,
	} {
		for _, call := range scriptCalls.FindAllStringSubmatch(source, -1) {
			out = append(out, strings.ToLower(call[1]))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// rightsScript returns those of the commands that the user may not run. What a
// script is not allowed would otherwise come up in the middle of work, without
// its name.
var rightsScript = redis.NewScript(`
local denied = {}
for _, name in ipairs(ARGV) do
  local on = KEYS[1] .. 'job:'
  if name == 'publish' or name == 'subscribe' then on = KEYS[1] .. 'bell' end
  if not redis.acl_check_cmd(name, on) then denied[#denied + 1] = name end
end
return denied`)

// checkRights refuses a user who could not do everything.
func checkRights(ctx context.Context, client redis.UniversalClient) error {
	var args []any
	for _, name := range needs() {
		args = append(args, name)
	}
	denied, err := rightsScript.Run(ctx, client, []string{redisPrefix}, args...).StringSlice()
	if err != nil {
		return err
	}
	if len(denied) > 0 {
		return fmt.Errorf("its user may not run %s on keys %s* or the channel %sbell; %s", strings.Join(denied, ", "), redisPrefix, redisPrefix, rightsAdvice)
	}
	return nil
}
