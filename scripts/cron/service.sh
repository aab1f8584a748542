#!/bin/sh
# workspool: spool of your own. See scripts/README.md.
export HOME='/home/YOU'
export LANG='C.UTF-8'
export LOGNAME='YOU'
export PATH='/home/YOU/.local/bin:/home/YOU/.cargo/bin:/usr/local/bin:/usr/bin:/bin'
export USER='YOU'
mkdir -p '/home/YOU/.workspool/logs/' && exec >>'/home/YOU/.workspool/logs/cron.log' 2>&1
if [ "$(wc -c <'/home/YOU/.workspool/logs/cron.log')" -gt 1000000 ]; then mv '/home/YOU/.workspool/logs/cron.log' '/home/YOU/.workspool/logs/cron.log'.1; fi
cd /
exec '/home/YOU/.local/bin/workspool' '--spool' '/home/YOU/.workspool' 'tick' '--quiet' '--log' '/home/YOU/.workspool/logs/service.log'
